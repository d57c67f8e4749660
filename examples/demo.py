"""Three tenants on one broker, one of them noisy: what a platform team sees of it. `make demo` runs this.

    python examples/demo.py [--seconds 30] [--out target/demo] [--no-spark]

1. A broker starts in a process of its own, with the request log on. Tenants get quotas, clients a telemetry
   subscription.
2. ``orders`` (our producer), ``search`` (confluent-kafka) and ``reports`` (our producer) write, ``dashboard``
   (confluent-kafka) reads. ``reports`` is noisy: half-way its limit is lowered, and the broker holds it back.
3. The pipelines make tables of what the broker has recorded, on Spark: latency, use of quotas, metrics of clients,
   advice on limits, and a dry run of that advice.
4. ``barnabas report`` makes a page of the tables. Its location and a summary are the last things on the screen.

Everything but the page, its pictures and the tables is gone at the end, also after Ctrl-C. Without Java 17 or later
the third step is left out, and the summary is what the clients themselves have seen.
"""

from __future__ import annotations

import argparse
import logging
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Final, Self

from confluent_kafka import Consumer, Producer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from barnabas import KafkaAdminClient, KafkaProducer
from barnabas.clients.admin.configs import ConfigResource, ConfigResourceType
from barnabas.clients.admin.quotas import ClientQuotaEntity
from barnabas.clients.admin.topics import NewTopic
from barnabas.quota.config import QuotaWindows

SETTINGS: Final = {
    "barnabas.request.log.sample.rate": "1.0",
    "barnabas.telemetry.advertise": "always",
    "barnabas.quota.usage.interval.ms": "1000",
    "quota.window.num": "3",
    "offsets.topic.num.partitions": "1",
}
"""Quotas are measured over two seconds instead of ten: with ten, who is far over a limit that is new waits for half of
the demo."""
WINDOWS: Final = QuotaWindows(3, 1)
QUOTA: Final = "producer_byte_rate"
RECORD_BYTES: Final = 1_000
CAPACITY: Final = 1_500_000
"""What the broker is said to take, for the advice: less than the tenants want together."""
LOWERED: Final = 1_000_000
"""The limit that the noisy tenant gets half-way."""
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
WAIT_S: Final = 30.0
SHORT_LIVED: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Options of Spark's Java process: it does not live long enough for the optimizing compiler to be worth its time."""
ADDRESS: Final = re.compile(r"bootstrap server\s+(\S+)")
console = Console(stderr=True, highlight=False)


@dataclass
class Tenant:
    """Somebody who writes at a steady pace, whether or not the broker lets it."""

    name: str
    rate: int
    """Bytes per second that it wants to send."""
    limit: int
    library: str
    sent: int = 0
    dropped: int = 0
    """Bytes that were written, and bytes that there was no room for while it was held back."""
    finished: threading.Event = field(default_factory=threading.Event)

    @property
    def text(self) -> str:
        dropped = f", gave up {self.dropped / 1e6:.1f} MB" if self.dropped else ""
        return f"{self.sent / 1e6:.1f} MB sent{dropped}"


@contextmanager
def running_broker(directory: Path) -> Iterator[str]:
    """``barnabas start`` as a process; the address of the broker."""
    command = [sys.executable, "-m", "barnabas.cli.main", "start", "--port", "0", "--data-dir", str(directory / "data")]
    for key, value in SETTINGS.items():
        command += ["--override", f"{key}={value}"]
    with (directory / "broker.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)  # noqa: S603 - ourselves
    try:
        assert process.stdout is not None
        # The rest of the banner fits into the pipe: nobody has to read on.
        found = next((match for line in process.stdout if (match := ADDRESS.search(line))), None)
        if found is None:
            raise RuntimeError(f"the broker did not start: {(directory / 'broker.log').read_text().strip()[-500:]}")
        yield found[1]
    finally:
        process.terminate()
        try:
            process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def paced(tenant: Tenant, stop: threading.Event) -> Iterator[int]:
    """How many records are due, again and again until it is time to stop. Who is a second behind forgets the rest."""
    start = time.monotonic()
    made = 0
    while not stop.wait(0.01):
        due = int((time.monotonic() - start) * tenant.rate / RECORD_BYTES)
        room = tenant.rate // RECORD_BYTES
        if due - made > room:
            tenant.dropped += (due - made - room) * RECORD_BYTES
            made = due - room
        yield due - made
        made = due


def write_with_barnabas(bootstrap: str, tenant: Tenant, stop: threading.Event) -> None:
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, client_id=tenant.name, linger_ms=20, buffer_memory=2_000_000, max_block_ms=5_000
    )
    futures: list[Any] = []
    try:
        for count in paced(tenant, stop):
            for _ in range(count):
                if stop.is_set():
                    break
                futures.append(producer.send(tenant.name, value=bytes(RECORD_BYTES)))
            # In order, so the first that is not done ends the count.
            while futures and futures[0].done():
                tenant.sent += RECORD_BYTES if futures.pop(0).exception() is None else 0
    finally:
        producer.close(5)
        tenant.sent += sum(RECORD_BYTES for one in futures if one.done() and one.exception() is None)


def write_with_confluent(bootstrap: str, tenant: Tenant, stop: threading.Event) -> None:
    def delivered(error: object, message: object) -> None:  # noqa: ARG001 - librdkafka's form
        tenant.sent += RECORD_BYTES if error is None else 0

    producer: Any = Producer(
        {"bootstrap.servers": bootstrap, "client.id": tenant.name, "linger.ms": 20, "log_level": 0},
        on_delivery=delivered,
    )
    try:
        for count in paced(tenant, stop):
            for _ in range(count):
                producer.produce(tenant.name, bytes(RECORD_BYTES))
            producer.poll(0)
    finally:
        producer.flush(5)


def read_with_confluent(bootstrap: str, reader: Tenant, topics: Sequence[str], stop: threading.Event) -> None:
    consumer: Any = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": reader.name,
            "group.id": reader.name,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    try:
        consumer.subscribe(list(topics))
        while not stop.is_set():
            reader.sent += sum(len(one.value() or b"") for one in consumer.consume(1_000, timeout=0.2))
    finally:
        consumer.close()


def set_limit(admin: KafkaAdminClient, client_id: str, limit: float) -> None:
    admin.alter_client_quotas({ClientQuotaEntity.of({"client-id": client_id}): {QUOTA: limit}})


def make_traffic(bootstrap: str, seconds: float) -> tuple[list[Tenant], int]:
    """Lets the tenants work; what became of them, and when the limit was lowered (microseconds since 1970)."""
    tenants = [
        Tenant("orders", 250_000, 1_000_000, "barnabas"),
        Tenant("search", 150_000, 1_000_000, "confluent-kafka"),
        Tenant("reports", 2_000_000, 5_000_000, "barnabas"),
    ]
    reader = Tenant("dashboard", 0, 0, "confluent-kafka")
    stop = threading.Event()
    with KafkaAdminClient(bootstrap_servers=bootstrap, client_id="operator") as admin, ExitStack() as threads:
        admin.create_topics([NewTopic(one.name, 1, 1) for one in tenants])
        for one in tenants:
            set_limit(admin, one.name, one.limit)
        subscription = ConfigResource(ConfigResourceType.CLIENT_METRICS, "demo")
        admin.incremental_alter_configs({subscription: {"metrics": "*", "interval.ms": "2000"}})
        writers = {"barnabas": write_with_barnabas, "confluent-kafka": write_with_confluent}
        work: list[tuple[Any, ...]] = [(writers[one.library], bootstrap, one, stop) for one in tenants]
        work.append((read_with_confluent, bootstrap, reader, [one.name for one in tenants], stop))
        try:
            for target, *arguments in work:
                thread = threading.Thread(target=target, args=arguments, daemon=True)
                thread.start()
                threads.callback(thread.join, WAIT_S)
            lowered_us = watch([*tenants, reader], seconds, lambda: set_limit(admin, "reports", LOWERED))
        finally:
            stop.set()  # also if it is interrupted before all of them have begun, or their ends would be waited for
        # What comes now is Spark's, and no tenant's.
        everybody = ConfigResource(ConfigResourceType.BROKER, "")
        for one in (*tenants, reader):
            one.finished.set()
        threads.close()
        admin.incremental_alter_configs({everybody: {"barnabas.request.log.sample.rate": "0"}})
    return [*tenants, reader], lowered_us


def watch(tenants: Sequence[Tenant], seconds: float, lower: Any) -> int:
    """Shows how far the tenants are, and lowers the limit half-way."""
    start = time.monotonic()
    lowered_us = 0
    bars = Progress(
        SpinnerColumn(),
        TextColumn("[bold]{task.description:<10}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[text]}"),
        TimeElapsedColumn(),
        console=console,
    )
    with bars:
        tasks = [(one, bars.add_task(one.name, total=seconds, text="")) for one in tenants]
        while (now := time.monotonic() - start) < seconds:
            time.sleep(0.2)
            if not lowered_us and now >= seconds / 2:
                lowered_us = time.time_ns() // 1_000
                lower()
                bars.console.print(f"[yellow]the limit of reports is {LOWERED / 1e6:g} MB/s from here on")
            for one, task in tasks:
                text = one.text if one.rate else f"{one.sent / 1e6:.1f} MB read"
                bars.update(task, completed=min(now, seconds), text=text)
    return lowered_us


class SparkStart:
    """Starts Spark in a thread, while the tenants are at work: that takes as long as a batch. Stops it at the end."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._session: Any = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._start, daemon=True)

    def _start(self) -> None:
        from barnabas.spark.session import JAVA_OPTIONS, make_session  # only where there is Spark

        settings = {"spark.local.dir": str(self._directory / "spark"), JAVA_OPTIONS: SHORT_LIVED}
        try:
            with errors_to(self._directory / "spark.log"):
                self._session = make_session("barnabas demo", settings=settings)
            # The first task of a session waits for a Python process and its imports.
            self._session.range(1).mapInArrow(lambda batches: batches, "id bigint").collect()
        except Exception as error:  # noqa: BLE001 - session() raises it
            self._error = error

    def session(self) -> Any:
        """Returns the session, as soon as there is one."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._session

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.join(WAIT_S)  # a Java process that is just being started could not be found
        stop_spark()


def run_pipelines(spark: Any, bootstrap: str, tables: Path, tenants: Sequence[Tenant], lowered_us: int) -> None:
    """All pipelines, in one Spark session and two at a time: each waits for the disk and for Python again and again.

    Advice and dry run are about the first half: nobody was held back in it.
    """
    from barnabas.spark.pipelines.config import PipelineConfig  # only where there is Spark
    from barnabas.spark.pipelines.progress import progress_display
    from barnabas.spark.pipelines.quota_advice import AdviceOptions, proposals
    from barnabas.spark.pipelines.quota_dry_run import DryRunOptions
    from barnabas.spark.pipelines.quota_proposal import Tenancy
    from barnabas.spark.pipelines.runner import run_advice, run_dry_run, run_stream

    config = PipelineConfig(out=str(tables), bootstrap_servers=bootstrap, once=True)
    writers = "|".join(one.name for one in tenants if one.rate)
    with progress_display() as display:

        def stream(name: str) -> None:
            run_again_if_need_be(lambda: run_stream(spark, name, config, display))

        def quotas() -> None:
            stream("quotas")
            display.note("quota-advice", "running")
            asked = AdviceOptions({QUOTA: CAPACITY}, windows=WINDOWS, end_us=lowered_us, client_pattern=writers)
            advised = run_advice(spark, config.out, asked)
            display.note("quota-advice", "done")
            display.note("quota-dry-run", "running")
            limits = tuple(proposals(advised, Tenancy.CLIENT_ID))
            tried = DryRunOptions(limits, windows=WINDOWS, end_us=lowered_us, client_pattern=writers)
            run_dry_run(spark, config.out, tried)
            display.note("quota-dry-run", "done")

        def others() -> None:
            stream("requests")
            stream("telemetry")

        run_at_once(quotas, others)


def run_at_once(*tasks: Callable[[], None]) -> None:
    """Runs each task in a thread. The first error ends the wait; the others end with Spark, which the caller stops."""
    ended: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()

    def work(task: Callable[[], None]) -> None:
        try:
            task()
        except Exception as error:  # noqa: BLE001 - raised below
            ended.put(error)
        else:
            ended.put(None)

    for task in tasks:
        threading.Thread(target=work, args=(task,), daemon=True).start()
    for _ in tasks:
        error = ended.get()
        if error is not None:
            raise error


def run_again_if_need_be(pipeline: Callable[[], None]) -> None:
    """On a machine that is busy Spark may give up on a worker that takes ten seconds to start. A pipeline goes on where
    it has stopped, so it can simply run again."""
    from barnabas.spark.pipelines.runner import PipelineError  # only where there is Spark

    for _ in range(2):
        try:
            pipeline()
        except PipelineError as error:
            console.print(f"once more, for: {error}", style="yellow", markup=False, soft_wrap=True)
        else:
            return
    pipeline()


@contextmanager
def errors_to(file: Path) -> Iterator[None]:
    """What processes that are started meanwhile write to their error stream goes to a file: Java is chatty."""
    own = os.dup(2)
    try:
        with file.open("wb") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        os.dup2(own, 2)
        os.close(own)


def stop_spark() -> None:
    """Ends the session and its Java process, also if it does not answer any more."""
    from pyspark import SparkContext  # only where there is Spark

    context, java = SparkContext._active_spark_context, getattr(SparkContext._gateway, "proc", None)
    if context is not None:
        stopping = threading.Thread(target=stop_quietly, args=(context,), daemon=True)
        stopping.start()
        stopping.join(15)
    if java is not None:
        with suppress(OSError):
            java.stdin.close()  # Spark's launcher ends when nobody holds this any more
        try:
            java.wait(10)
        except subprocess.TimeoutExpired:
            java.kill()
            java.wait()


def stop_quietly(context: Any) -> None:
    with suppress(Exception):  # its Java process may be gone already
        context.stop()


def show_clients(tenants: Sequence[Tenant], seconds: float) -> None:
    """What there is to see without Spark: what the clients themselves know."""
    shown = Table(title="What the clients have seen")
    for header in ("tenant", "library", "wanted MB/s", "got MB/s", "limit MB/s in the end"):
        shown.add_column(header)
    for one in tenants:
        limit = LOWERED if one.name == "reports" else one.limit
        wanted = f"{one.rate / 1e6:.2f}" if one.rate else "all"
        got = f"{one.sent / seconds / 1e6:.2f}"
        shown.add_row(one.name, one.library, wanted, got, f"{limit / 1e6:.2f}" if limit else "-")
    Console().print(shown)


def show_summary(page: Any, where: Path) -> None:
    from barnabas.report.terminal import conclusion_lines, summary_table

    out = Console(highlight=False)
    out.print(summary_table(page.summary))
    out.print("\n".join(conclusion_lines(page.conclusions)), markup=False, soft_wrap=True)
    out.print(f"The report: {(where / 'report.html').resolve().as_uri()}", soft_wrap=True)


def run(seconds: float, out: Path, with_spark: bool) -> None:
    from barnabas.report.cluster_state import read_cluster
    from barnabas.report.page import make_report

    java_problem = find_java_problem() if with_spark else "left out, as asked"
    work = Path(tempfile.mkdtemp(prefix="barnabas-demo-"))
    try:
        with running_broker(work) as bootstrap, ExitStack() as stack:
            spark = stack.enter_context(SparkStart(work)) if java_problem is None else None
            console.print(f"[bold]A broker at {bootstrap}[/bold], three tenants, and {seconds:g} s of traffic")
            tenants, lowered_us = make_traffic(bootstrap, seconds)
            if spark is not None:
                console.print("[bold]Pipelines on Spark[/bold]: what the broker and the clients have recorded")
                run_pipelines(spark.session(), bootstrap, work / "tables", tenants, lowered_us)
            with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
                cluster = read_cluster(admin)
        show_clients(tenants, seconds)
        if java_problem is not None:
            console.print(f"No pipelines and no report: {java_problem}", markup=False, soft_wrap=True)
            return
        page = make_report(work / "tables", title="Three tenants, one of them noisy", cluster=cluster)
        page.write_html(work / "report.html")
        page.write_pngs(work / "charts")
        out.mkdir(parents=True, exist_ok=True)
        for name in ("tables", "charts", "report.html"):
            replace(work / name, out / name)
        show_summary(page, out)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def find_java_problem() -> str | None:
    """Why Spark cannot run here; None if it can."""
    from barnabas.spark.java_runtime import JavaMissingError, require_java

    try:
        require_java()
    except JavaMissingError as error:
        return str(error)
    return None


def replace(source: Path, target: Path) -> None:
    if target.is_dir():
        shutil.rmtree(target)
    shutil.move(source, target)


def interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a signal handler's form
    """The first signal ends the demo in order; the ones after it are too late to change that."""
    for one in SIGNALS:
        signal.signal(one, signal.SIG_IGN)
    logging.disable()  # that a call of Spark's was interrupted is no news
    raise KeyboardInterrupt


def handle_signals() -> None:
    for one in SIGNALS:
        signal.signal(one, interrupt)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=30.0, help="how long there is traffic; 30 if left out")
    parser.add_argument("--out", type=Path, default=Path("target/demo"), help="where the report goes; target/demo")
    parser.add_argument("--no-spark", action="store_true", help="leave out what needs Java")
    options = parser.parse_args()
    handle_signals()
    # A descriptor of our own: the usual one leads to a file while Spark starts.
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1)
    started = time.monotonic()
    try:
        run(options.seconds, options.out, not options.no_spark)
    except KeyboardInterrupt:
        console.print("Stopped; nothing is left behind.")
        return 130
    except Exception as error:
        if os.environ.get("BARNABAS_DEBUG"):
            raise
        console.print(f"error: {type(error).__name__}: {error}", style="red", markup=False, soft_wrap=True)
        return 1
    console.print(f"That took {time.monotonic() - started:.0f} s.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
