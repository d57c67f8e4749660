"""Rounds in turns, within a time, and what happens when a case does not work."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from benchmarks.peers import rounds
from benchmarks.peers.budget import FIXED_S, START_ROUND_S, Budget, Timing, clock_text, estimate
from benchmarks.peers.case import Metric
from benchmarks.peers.cases import full_cases, quick_cases
from benchmarks.peers.rounds import Outcome, measure, reason_of, revive
from benchmarks.peers.systems import KAFKA, OURS

from unit.benchmarks.peers_fixtures import measured


class FakeServer:
    """Has no process, or one that has ended."""

    def __init__(self, returncode: int | None = None) -> None:
        self.process = self
        self.returncode = returncode
        self.starts = 0

    def poll(self) -> int | None:
        return self.returncode

    def start(self) -> float:
        self.starts += 1
        return 0.1


class FakeCase:
    """Counts; a call of `fails_at` (what, how often before) goes wrong."""

    key, title = "fake", "a fake"
    metrics = (Metric("throughput", "MB/s", target=1.0),)

    def __init__(self, fails_at: tuple[str, int] | None = None) -> None:
        self.calls: list[tuple[str, Any]] = []
        self._fails_at = fails_at

    def _call(self, what: str, server: Any) -> None:
        before = sum(1 for each, _ in self.calls if each == what)
        self.calls.append((what, server))
        if self._fails_at == (what, before):
            raise RuntimeError(f"first line\nno more {what} in /some/where/deep.py\n")

    def prepare(self, server: Any) -> None:
        self._call("prepare", server)

    def measure(self, server: Any) -> dict[str, float]:
        self._call("measure", server)
        return {"throughput": float(len(self.calls))}

    def clean_up(self, server: Any) -> None:
        self._call("clean_up", server)


@pytest.fixture(autouse=True)
def _quiet_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoOthers:
        def __init__(self, _: object) -> None: ...

        def part(self) -> float:
            return 0.02

    monkeypatch.setattr(rounds, "settle", lambda *_: None)
    monkeypatch.setattr(rounds, "Others", NoOthers)


def take(case: FakeCase, count: int = 3, budget: Budget | None = None) -> Outcome:
    servers: dict[str, Any] = {OURS: "ours", KAFKA: "kafka"}
    return measure(case, servers, count, budget or Budget(1000))


def test_the_order_changes_with_every_round() -> None:
    case = FakeCase()
    outcome = take(case)
    assert [server for what, server in case.calls if what == "measure"] == [
        "ours", "kafka", "kafka", "ours", "ours", "kafka"
    ]  # fmt: skip
    (one,) = outcome.measured
    assert len(one.values[OURS]) == len(one.values[KAFKA]) == len(one.others) == 3
    assert outcome.failure is None
    assert outcome.timing.rounds == 3


@pytest.mark.parametrize(("fails_at", "whole_rounds"), [(("prepare", 1), 0), (("measure", 0), 0), (("measure", 3), 1)])
def test_a_case_that_fails_is_told_cleaned_up_and_keeps_its_whole_rounds(
    fails_at: tuple[str, int], whole_rounds: int
) -> None:
    case = FakeCase(fails_at)
    outcome = take(case)
    assert outcome.failure == f"RuntimeError: no more {fails_at[0]} in deep.py"
    assert [len(one.ratios) for one in outcome.measured] == ([whole_rounds] if whole_rounds else [])
    assert [server for what, server in case.calls if what == "clean_up"] == ["ours", "kafka"]


def test_a_case_that_cannot_be_cleaned_up_has_its_figures() -> None:
    outcome = take(FakeCase(("clean_up", 0)))
    assert len(outcome.measured) == 1
    assert outcome.failure is not None
    assert outcome.failure.startswith("cleaning up: ")


def test_an_interruption_is_no_failure_of_the_case() -> None:
    class Interrupted(FakeCase):
        def measure(self, server: Any) -> dict[str, float]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        take(Interrupted())


def test_reasons_are_short_and_without_directories() -> None:
    assert reason_of(subprocess.TimeoutExpired(["/usr/bin/java", "x"], 120)) == "TimeoutExpired: not done after 120 s"
    assert reason_of(ValueError("")) == "ValueError: "
    assert reason_of(ValueError("this\n%4|179.9|TERMINATE|rdkafka#producer-1| that\n")) == "ValueError: this"
    assert len(reason_of(ValueError("x" * 10_000))) == rounds.MAX_REASON
    assert reason_of(OSError("at 127.0.0.1:9092 s/GB a/b")) == "OSError: at 127.0.0.1:9092 s/GB a/b"


def test_only_a_broker_that_has_ended_is_started_again() -> None:
    alive, dead = FakeServer(), FakeServer(-9)
    told: list[str] = []
    servers: dict[str, Any] = {OURS: alive, KAFKA: dead}
    revive(servers, told.append)
    assert (alive.starts, dead.starts) == (0, 1)
    assert len(told) == 1


def test_with_little_time_left_there_are_two_rounds_and_later_none() -> None:
    now = 0.0
    budget = Budget(100, lambda: now)
    assert budget.allows(4)
    now = 90.0
    assert [budget.allows(number) for number in range(3)] == [True, True, False]
    over = [budget.is_over]
    assert take(FakeCase(), 5, budget).timing.rounds == 2
    now = 100.0
    assert [*over, budget.is_over] == [False, True]
    assert budget.elapsed_s == 100.0


def test_the_estimate_goes_by_what_the_last_run_took() -> None:
    known = {"a": Timing(30.0, 3), "broken": Timing(1.0, 0)}
    assert estimate([("a", 5)], known, 0, 7.0) == 50.0 + FIXED_S
    assert estimate([("broken", 2), ("new", 1)], known, 0, 7.0) == 3 * 7.0 + FIXED_S
    assert estimate([], known, 3, 7.0) == 3 * START_ROUND_S
    assert clock_text(245.9) == "4:05"


def test_merit_is_beside_the_target_and_more_is_always_better() -> None:
    assert measured("x", [50], [100], target=1.0).merit == 0.5
    assert measured("x", [50], [100]).merit == 0.5
    assert measured("x", [10], [100], target=0.2, more_is_better=False).merit == pytest.approx(2.0)
    assert measured("x", [10], [0], target=0.2).merit is None


def test_every_case_has_a_key_of_its_own() -> None:
    keys = [case.key for case in full_cases()]
    assert len(set(keys)) == len(keys)
    assert {case.key for case in quick_cases()} <= set(keys)


def test_all_that_is_to_be_compared_is_in_the_full_run() -> None:
    titles = "\n".join(case.title for case in full_cases())
    for part in (
        "100 B", "1 KiB", "10 KiB", "acks=1", "acks=all idempotent", " 1 partition,", "12 partitions", "100 partitions",
        "10 clients", "lz4", "catch-up", "tail of", "end to end at 100 ", "end to end at 1,000 ", "create",
        "1,000 partitions", "Java", "librdkafka", "kafka-python", "aiokafka",
    ):  # fmt: skip
        assert part in titles, part
