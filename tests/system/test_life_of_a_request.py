"""Writes docs/life-of-a-request.md from traces of a running broker, and fails if the page has become untrue.

``BARNABAS_WRITE_DOCS=1 pytest tests/system/test_life_of_a_request.py`` writes the page.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from benchmarks.wire_client import WireClient

from barnabas import EmbeddedBroker, KafkaProducer, _kernels
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas.spark.source_batch import BatchReader
from barnabas.spark.source_options import SourceOptions
from call_trace import Call, CallTrace, summary_of
from documents import ROOT

PAGE = ROOT / "docs" / "life-of-a-request.md"
TRACES = 9
"""Timers and other background work are not in each of them."""
WARM_UPS = 10
"""The first requests load modules, compile codecs and fill caches."""
TOPIC = "orders"
LEFT_OUT = ("common/clock.py", "common/shutdownable_thread.py", "common/log_safety.py")
"""Modules without which a list is easier to read."""
DEEPEST = 6
"""Levels of calls that are shown where a request goes through several threads."""


@dataclass(slots=True)
class Life:
    """One kind of request: what it is, how to send one, and which threads to show."""

    title: str
    about: str
    send: Callable[[], object]
    threads: str
    """A pattern of the names of threads."""
    exact: bool = False
    """Whether the page must show all calls, in their order; otherwise every call that it shows must happen."""
    traces: list[list[Call]] = field(default_factory=list)

    def calls(self, trace: list[Call]) -> list[Call]:
        """Those to show. Threads of a pool count as one: any of them may take a request."""
        return [
            call._replace(thread=re.sub(r"(handler|network-thread-.*)-\d+$", r"\1", call.thread))
            for call in trace
            if re.match(self.threads, call.thread) and call.module not in LEFT_OUT
        ]

    def hops(self) -> dict[str, list[Call]]:
        """By thread, in order, each call once: the calls of the usual trace, or those that every trace has."""
        traces = [self.calls(trace) for trace in self.traces]
        called = [frozenset((call.thread, call.code) for call in trace) for trace in traces]
        usual, _ = Counter(called).most_common(1)[0]
        common = set(usual if self.exact else frozenset.intersection(*called))
        threads: dict[str, list[Call]] = {}
        for call in traces[called.index(usual)]:
            if (call.thread, call.code) in common:
                common.remove((call.thread, call.code))
                threads.setdefault(call.thread, []).append(call)
        return threads


INTRODUCTION = """# The life of a request

These lists show the road of a request through the code, as traced in a running broker: the Python functions that run on
a thread, in the order in which they are first called, indented by the depth of the call. [A
test](../tests/system/test_life_of_a_request.py) traces the broker again, writes this page, and fails if it is no longer
true. Compiled kernels ([`_kernels`](../src/barnabas/_kernels/__init__.py)) do not show: they are functions on buffers
that call nothing. Generated codecs do not show either: they come from the message declarations in
[protocol/messages](../src/barnabas/protocol/messages).

Read one list with the modules open beside it. [Mechanisms](mechanisms.md) says which documented mechanism each module
implements, [architecture](architecture.md) why it is built this way.
"""


def page_of(lives: list[Life]) -> str:
    parts = [INTRODUCTION]
    for life in lives:
        parts.append(f"## {life.title}\n\n{life.about}\n")
        for thread, calls in life.hops().items():
            modules = len({call.module for call in calls})
            parts.append(f"**{thread}**: {len(calls)} functions in {modules} modules\n")
            parts.append("\n".join(lines_of(calls, 99 if life.exact else DEEPEST)) + "\n")
    return "\n".join(parts)


def lines_of(calls: list[Call], deepest: int) -> Iterator[str]:
    least = min(call.depth for call in calls)
    levels: list[int] = []
    for call in calls:
        depth = call.depth - least
        while levels and levels[-1] >= depth:
            levels.pop()
        levels.append(depth)
        if len(levels) <= deepest:
            about = summary_of(call.code)
            link = f"[{call.module}](../src/barnabas/{call.module})"
            yield f"{'  ' * (len(levels) - 1)}- `{call.function}` {link}{': ' if about else ''}{about}"


def shown(title: str) -> list[tuple[str, str]]:
    """The functions, with their modules, that the page shows under a heading."""
    chapters = re.split(r"^## (.*)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    text = chapters[chapters.index(title) + 1]
    return re.findall(r"^ *- `([^`]+)` \[([^\]]+)\]", text, flags=re.MULTILINE)


@pytest.fixture(scope="module")
def lives() -> list[Life]:
    trace = CallTrace()
    found: list[Life] = []

    def follow(life: Life) -> None:
        for number in range(WARM_UPS + TRACES):
            with trace.recording() as calls:
                life.send()
            if number >= WARM_UPS:
                life.traces.append(list(calls))
        found.append(life)

    with trace.installed(), EmbeddedBroker() as broker:
        client = WireClient(broker.bootstrap_servers)
        client.create_topic(TOPIC)
        for life in lives_of(client):
            follow(life)
        client.socket.close()
        with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:  # only now: it sends by itself, too
            follow(producer_send(producer))
        follow(spark_row(broker))
    if os.environ.get("BARNABAS_WRITE_DOCS") == "1":
        PAGE.write_text(page_of(found), encoding="utf-8")
    return found


def lives_of(client: WireClient) -> list[Life]:
    names = (f"topic-{number}" for number in range(1000))
    member = Member(client)
    return [
        Life(
            "Produce",
            "A producer sends one batch with `acks=all` to a partition without followers. The network thread reads the "
            "frame and runs the handler itself, because nothing is queued ahead of it (`direct`).",
            lambda: client.produce(TOPIC, 0, b"value"),
            threads=r"data-plane-kafka-network-thread",
            exact=True,
        ),
        Life(
            "Fetch",
            "A consumer fetches what is there. The response refers to a region of the log file, and `sendfile` sends "
            "it.",
            lambda: client.fetch(TOPIC, 0),
            threads=r"data-plane-kafka-network-thread",
            exact=True,
        ),
        Life(
            "Heartbeat of a consumer group",
            "A member of a consumer group reports to the group coordinator. The request may wait, so a handler of the "
            "pool takes it. The coordinator runs the events of one partition of `__consumer_offsets` one by one.",
            member.heartbeat,
            threads=r"data-plane|group-coordinator",
        ),
        Life(
            "CreateTopics",
            "The broker forwards the request to the active controller. The controller writes records to the metadata "
            "log and responds when they are committed; the broker replays them and opens the log.",
            lambda: client.create_topic(next(names)),
            threads=r"data-plane|broker-1-to-controller-forwarding|control-plane|controller|quorum|raft|kafka-1-|meta",
        ),
    ]


def producer_send(producer: KafkaProducer) -> Life:
    return Life(
        "KafkaProducer.send",
        "`send` appends the record to a batch; the producer's I/O thread sends the batch and completes the future.",
        lambda: producer.send(TOPIC, b"value").get(60),
        threads=r"MainThread|kafka-producer-network-thread",
    )


def spark_row(broker: EmbeddedBroker) -> Life:
    reader = BatchReader(SourceOptions.of({"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": TOPIC}))
    return Life(
        "A row of a Spark DataFrame",
        'The driver plans `spark.read.format("barnabas")` as ranges of offsets (`partitions`); a Python worker of an '
        "executor fetches a range and hands Arrow batches to Spark (`read`).",
        lambda: [batch for part in reader.partitions() for batch in reader.read(part)],
        threads="MainThread",
    )


class Member:
    """A member of a consumer group, as far as its heartbeats."""

    def __init__(self, client: WireClient) -> None:
        self._client = client
        self._epoch = 0

    def heartbeat(self) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id="readers",
            member_id="AAAAAAAAAAAAAAAAAAAAAA",
            member_epoch=self._epoch,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=[TOPIC],
            topic_partitions=[] if self._epoch == 0 else None,
        )
        response = self._client.ask(request, 1, ConsumerGroupHeartbeatResponse)
        if response.error_code == 0:
            self._epoch = response.member_epoch


def test_the_page_shows_what_runs(lives: list[Life]) -> None:
    if not _kernels.is_compiled("reactor"):
        pytest.skip("the page shows the road with compiled kernels")
    for life in lives:
        on_page = shown(life.title)
        again = "BARNABAS_WRITE_DOCS=1 writes the page anew"
        assert on_page, f"{life.title} is not on the page; {again}"
        if life.exact:
            calls = [(call.function, call.module) for hops in life.hops().values() for call in hops]
            assert set(calls) == set(on_page), f"{life.title} has changed; {again}"
        else:
            happened = {(call.function, call.module) for trace in life.traces for call in trace}
            assert set(on_page) <= happened, f"{life.title} has changed; {again}"
