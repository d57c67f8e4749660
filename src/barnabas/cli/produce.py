"""``barnabas produce``: sends lines of text as records.

seq 100 | barnabas produce numbers
barnabas produce orders --file orders.jsonl --json --rate 1000
echo 'a:1' | barnabas produce orders --key-separator : --header source=shell
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from barnabas.cli.arguments import ArgumentParser, add_command
from barnabas.cli.cluster import Cluster, add_cluster
from barnabas.cli.console import CommandError, UsageError, reason, say

if TYPE_CHECKING:
    from barnabas.cli.arguments import Commands
    from barnabas.cli.produce_input import Header, LineReader
    from barnabas.clients.producer import KafkaProducer
    from barnabas.common.clock import Clock

DESCRIPTION: Final = """Sends each line as a record, from standard input or from files. Ctrl-C stops reading; lines that
were read before are sent.

With --json, a line is an object with the fields value, key, headers, partition and timestamp. Only value is required.
Strings are sent as UTF-8, null as null, and everything else as JSON:

  {"key": "42", "value": {"item": "tea", "count": 2}, "headers": {"source": "shop"}, "timestamp": 1700000000000}

An invalid line stops the command with its line number; lines before it are sent."""
CATCH_UP_MS: Final = 100.0
"""The longest delay that --rate makes up for. A rate protects a cluster, so a long delay must not become a burst."""
PROGRESS_RECORDS: Final = 256
"""The number of records between two updates of the progress bar."""


def add_produce(commands: Commands) -> None:
    parser = add_command(commands, "produce", produce_command, "send lines of text as records", DESCRIPTION)
    add_cluster(parser, "--producer-property")
    parser.add_argument("topic", help="the topic")
    parser.add_argument(
        "-f",
        "--file",
        dest="files",
        action="append",
        default=[],
        metavar="FILE",
        help="a file to read; may be repeated",
    )
    parser.add_argument("--json", dest="as_json", action="store_true", help="lines are JSON objects, see above")
    parser.add_argument("-k", "--key-separator", metavar="TEXT", help="separates key and value in a line")
    parser.add_argument(
        "-H",
        "--header",
        dest="headers",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a header of all records; may be repeated",
    )
    parser.add_argument("-p", "--partition", type=int, metavar="N", help="the partition of records that name none")
    parser.add_argument("-r", "--rate", type=positive, metavar="N", help="the maximum number of records per second")
    add_producer_options(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress, no summary")


def add_producer_options(parser: ArgumentParser) -> None:
    parser.add_argument("--acks", choices=("all", "-1", "0", "1"), help="which replicas must acknowledge a record")
    parser.add_argument(
        "-z", "--compression", choices=("none", "gzip", "snappy", "lz4", "zstd"), help="the codec of batches"
    )


def positive(text: str) -> float:
    """Parses a positive number for ``type=``."""
    import argparse

    try:
        number = float(text)
    except ValueError:
        number = 0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number above 0: {text!r}")
    return number


def produce_command(
    cluster: Cluster,
    topic: str,
    files: list[str],
    as_json: bool,
    key_separator: str | None,
    headers: list[str],
    partition: int | None,
    rate: float | None,
    acks: str | None,
    compression: str | None,
    quiet: bool,
) -> None:
    """Sends lines as records."""
    from barnabas.cli.pace import Pace
    from barnabas.cli.produce_input import line_reader
    from barnabas.cli.producer_settings import producer_for
    from barnabas.common.clock import SYSTEM_CLOCK

    if as_json and key_separator is not None:
        raise UsageError("--key-separator cannot be used with --json: a JSON line has a field for its key")
    if key_separator == "":
        raise UsageError("--key-separator must not be empty")
    if partition is not None and partition < 0:
        raise UsageError(f"--partition must not be negative: {partition}")
    settings = cluster.properties({"client.id": "barnabas-produce"})
    settings |= {
        name: value for name, value in (("acks", acks), ("compression.type", compression)) if value is not None
    }
    common = [_header(text) for text in headers]
    inputs = [_Input(name) for name in files or ["-"]]
    with producer_for(settings) as producer:
        reader = line_reader(as_json=as_json, key_separator=key_separator)
        producing = Producing(producer, topic, reader, common, partition, SYSTEM_CLOCK)
        pace = Pace(rate, SYSTEM_CLOCK, CATCH_UP_MS)
        with _progress(inputs, hidden=quiet) as advance:
            try:
                for source in inputs:
                    producing.send_lines(source, pace, advance)
            except KeyboardInterrupt:
                say("\n", sys.stderr)
            finally:
                producing.finish()
    if not quiet:
        say(producing.summary() + "\n", sys.stdout)
    if producing.problem is not None:
        raise producing.problem


def _header(text: str) -> Header:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--header must have the form name=value: {text!r}")
    return name, value.encode()


class _Input:
    """A source of lines. ``-`` is standard input."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.size = 0
        if name != "-":
            try:
                self.size = Path(name).stat().st_size
            except OSError as error:
                raise CommandError(reason(error)) from None

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        if self.name == "-":
            yield sys.stdin.buffer
            return
        with ExitStack() as stack:
            try:
                stream = stack.enter_context(Path(self.name).open("rb"))
            except OSError as error:
                raise CommandError(reason(error)) from None
            yield stream

    def where(self, line: int) -> str:
        return f"line {line}" if self.name == "-" else f"{self.name}:{line}"


class Producing:
    """Reads lines, sends records and counts the outcomes."""

    def __init__(
        self,
        producer: KafkaProducer,
        topic: str,
        reader: LineReader,
        headers: list[Header],
        partition: int | None,
        clock: Clock,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._read = reader
        self._headers = headers
        self._partition = partition
        self._clock = clock
        self._started = clock.nanoseconds()
        self._seconds = 0.0
        self.sent = 0
        self.size = 0
        self.failures = 0
        self.problem: CommandError | None = None
        """The first error."""

    def send_lines(self, source: _Input, pace: Any, advance: Any) -> None:
        """Sends a record per line, until the end or the first error."""
        from barnabas.cli.produce_input import BadLineError

        with source.open() as stream:
            read = 0
            for number, line in enumerate(stream, 1):
                if self.problem is not None:
                    return
                try:
                    record = self._read(line.rstrip(b"\r\n"))
                except BadLineError as error:
                    self.problem = CommandError(f"{source.where(number)}: {error}")
                    return
                pace.wait_for(self.sent)
                self._producer.send(
                    self._topic,
                    record.value,
                    record.key,
                    [*record.headers, *self._headers] if self._headers or record.headers else None,
                    self._partition if record.partition is None else record.partition,
                    record.timestamp_ms,
                    callback=partial(self._completed, source, number),
                )
                self.sent += 1
                self.size += len(record.value or b"") + len(record.key or b"")
                read += len(line)
                if not number % PROGRESS_RECORDS:
                    advance(read, self.sent)
                    read = 0
            advance(read, self.sent)

    def _completed(self, source: _Input, line: int, _metadata: Any, error: Exception | None) -> None:
        if error is not None:
            self.failures += 1
            if self.problem is None:
                self.problem = CommandError(f"{source.where(line)}: {error}")

    def finish(self) -> None:
        """Waits until all records are acknowledged or failed."""
        self._producer.flush()
        self._seconds = (self._clock.nanoseconds() - self._started) / 1e9

    def summary(self) -> str:
        written = self.sent - self.failures
        seconds = max(self._seconds, 1e-9)
        text = f"{written:,} record{'' if written == 1 else 's'} to {self._topic} in {self._seconds:.2f} s"
        if written:
            text += f" ({written / seconds:,.0f} records/s, {self.size / seconds / 1e6:,.2f} MB/s)"
        return text + (f", {self.failures:,} failed" if self.failures else "")


@contextmanager
def _progress(inputs: list[_Input], *, hidden: bool) -> Iterator[Any]:
    """Yields a function that updates a progress bar; there is no bar without a terminal, or while the user types."""
    typing = any(source.name == "-" for source in inputs) and sys.stdin.isatty()
    if hidden or typing or not sys.stderr.isatty():
        yield lambda _octets, _records: None
        return
    from rich.console import Console  # takes as long to load as the rest of the command line
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    known = all(source.size for source in inputs)
    columns: list[Any] = [TextColumn("{task.fields[records]:,} records"), BarColumn(), DownloadColumn()]
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=sum(source.size for source in inputs) if known else None, records=0)
        yield lambda octets, records: progress.update(task, advance=octets, records=records)
