"""``barnabas perf produce``: what it counts, and what it prints."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas import EmbeddedBroker
from barnabas.cli.main import run
from barnabas.cli.perf_stats import MAX_SAMPLES, Figures, Stats, json_line, text_line
from barnabas.clients.common.blocking_client import BlockingClient
from barnabas.clients.common.topic_tail import TopicTail
from barnabas.common.clock import MockClock
from unit.cli.command_line import WAIT_S

FINAL = re.compile(
    r"(\d+) records sent, \d+\.\d records/sec \(\d+\.\d\d MB/sec\), \d+\.\d\d ms avg latency, "
    r"\d+\.\d\d ms max latency, \d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99\.9th\.\n"
)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as started:
        yield started


class Shell:
    def __init__(self, broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
        self.bootstrap = broker.bootstrap_servers
        self._capsys = capsys

    def __call__(self, *arguments: str, expect: int = 0) -> str:
        code = run(["perf", "produce", "-b", self.bootstrap, *arguments])
        out, err = self._capsys.readouterr()
        assert code == expect, out + err
        return out if expect == 0 else err

    def values(self, topic: str, count: int) -> list[bytes]:
        found: list[bytes] = []
        deadline = time.monotonic() + WAIT_S
        with BlockingClient(self.bootstrap) as client:
            tail = TopicTail(client, topic, from_beginning=True)
            while len(found) < count:
                assert time.monotonic() < deadline, f"{len(found)} of {count} records came"
                found += [bytes(tailed.record.value or b"") for tailed in tail.poll(500)]
        return found


@pytest.fixture
def shell(broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(broker, capsys)


def test_records(shell: Shell) -> None:
    out = shell(
        "--topic", "records", "--num-records", "500", "--record-size", "20", "--producer-props", "acks=1", "linger.ms=1"
    )
    found = FINAL.fullmatch(out.splitlines(keepends=True)[-1])  # a slow machine prints lines of progress, too
    assert found is not None, out
    assert found[1] == "500"
    values = shell.values("records", 500)
    assert {len(value) for value in values} == {20}


def test_tables(shell: Shell) -> None:
    out = shell("--topic", "tables", "--num-records", "1050", "--record-size", "20", "--table", "100")
    found = FINAL.fullmatch(out.splitlines(keepends=True)[-1])  # a slow machine prints lines of progress, too
    assert found is not None, out
    assert found[1] == "1050"
    assert len(shell.values("tables", 1_050)) == 1_050


def test_payloads_of_a_file(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "payloads"
    file.write_bytes(b"a|bb|ccc|")
    arguments = ("--payload-file", str(file), "--payload-delimiter", "|")
    shell("--topic", "payloads", "--num-records", "60", *arguments)
    shell("--topic", "payloads", "--num-records", "60", *arguments, "--table", "30")
    assert set(shell.values("payloads", 120)) == {b"a", b"bb", b"ccc"}


def test_throughput_and_json(shell: Shell) -> None:
    out = shell("--topic", "json", "--num-records", "100", "--record-size", "10", "--throughput", "400", "--json")
    (line,) = out.splitlines()
    document = json.loads(line)
    assert document["kind"] == "total"
    assert document["records"] == 100
    assert 10 < document["records_per_second"] <= 410
    assert document["p99_ms"] >= document["p50_ms"]


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (["--num-records", "1", "--record-size", "1"], 2, "--topic"),
        (["--topic", "t", "--num-records", "0", "--record-size", "1"], 2, "must be a number of at least 1: '0'"),
        (["--topic", "t", "--num-records", "1"], 2, "--record-size --payload-file"),
        (["--topic", "t", "--num-records", "1", "--payload-file", "nowhere"], 1, "nowhere: No such file"),
        (
            ["--topic", "t", "--num-records", "1", "--record-size", "1", "--producer-props", "ack=1"],
            2,
            "--producer-props: unknown setting ack; did you mean acks?",
        ),
        (["--topic", "in valid", "--num-records", "5", "--record-size", "1"], 1, "in valid"),
        (
            ["--topic", "t", "--num-records", "5", "--record-size", "90", "--producer-props", "max.request.size=80"],
            1,
            "larger than 80, which is the value of the max.request.size",
        ),
        (
            [
                "--topic",
                "t",
                "--num-records",
                "5",
                "--record-size",
                "90",
                "--table",
                "--producer-props",
                "max.request.size=80",
            ],
            1,
            "5 of 5 rows for t were not acknowledged: Row 0 is",
        ),
    ],
)
def test_what_goes_wrong(shell: Shell, arguments: list[str], code: int, problem: str) -> None:
    error = shell(*arguments, expect=code)
    assert problem in error
    assert error.count("\n") == 1


def test_an_empty_file_of_payloads(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    error = shell("--topic", "t", "--num-records", "1", "--payload-file", str(tmp_path / "empty"), expect=1)
    assert error.endswith("empty is empty\n")


# -- figures


def test_interim_lines_and_the_total() -> None:
    clock = MockClock()
    lines: list[Figures] = []
    stats = Stats(10_000, clock, lines.append)
    for number in range(12_000):
        started_ns = clock.nanoseconds()
        clock.advance(1)
        stats.add(1, 1024, started_ns - (9_000_000 if number == 7_000 else 0))
    assert [(figures.records, figures.max_latency_ms) for figures in lines] == [(5_000, 1.0), (5_000, 10.0)]
    assert text_line(lines[0]) == (
        "5000 records sent, 1000.0 records/sec (0.98 MB/sec), 1.0 ms avg latency, 1.0 ms max latency."
    )
    total = stats.total()
    assert (total.records, total.records_per_second) == (12_000, 1_000.0)
    assert total.max_latency_ms == 10.0
    assert total.percentiles_ms == (1, 1, 1, 1)
    assert json.loads(json_line(lines[0]))["kind"] == "interim"


def test_percentiles_of_tables_count_rows() -> None:
    clock = MockClock()
    stats = Stats(1_000, clock, lambda _: None)
    for latency_ms, rows in ((10, 900), (20, 90), (30, 10)):
        stats.add(rows, 0, clock.nanoseconds() - latency_ms * 1_000_000)
    assert stats.total().percentiles_ms == (10, 20, 30, 30)
    assert stats.total().average_latency_ms == pytest.approx(11.1)


def test_of_many_records_a_sample_is_kept() -> None:
    stats = Stats(MAX_SAMPLES * 4, MockClock(), lambda _: None)
    for _ in range(10):
        stats.add(1, 0, 0)
    stats.add(90, 0, 0)
    assert len(stats._latencies) == 25


def test_nothing_at_all() -> None:
    assert Stats(1, MockClock(), lambda _: None).total().percentiles_ms == (0, 0, 0, 0)
