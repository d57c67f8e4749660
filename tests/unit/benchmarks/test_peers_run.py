"""A run from beginning to end, with brokers and cases that do nothing: what is kept when something goes wrong."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from benchmarks.peers import __main__ as program
from benchmarks.peers import results
from benchmarks.peers.budget import Budget, Timing
from benchmarks.peers.case import Metric
from benchmarks.peers.rounds import Outcome
from benchmarks.peers.run import Run

from unit.benchmarks.peers_fixtures import MACHINE, measured


class NamedCase:
    def __init__(self, key: str, *, target: float | None = 1.0) -> None:
        self.key = key
        self.title = f"the case {key}"
        self.metrics = (Metric("throughput", "MB/s", target=target),)


class Stage:
    """In place of everything that takes a machine; `troubles` are what a case of that name does instead of working."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
        self.troubles: dict[str, BaseException | str] = {}
        self.asked: list[tuple[str, int]] = []
        self.revived = 0
        self.cases: list[Any] = [NamedCase("one"), NamedCase("two", target=None), NamedCase("three")]
        self.profiled: list[Path] = []
        self.directory = directory
        for name, value in {
            "both": self._both,
            "compiled": lambda place: place,
            "warm_up": lambda *_: [],
            "start_up_rounds": lambda *_: [measured("start-up", [1], [100], target=0.1, more_is_better=False)],
            "loaded_memory": lambda _: [],
            "full_cases": lambda: self.cases,
            "quick_cases": lambda: self.cases,
            "measure": self._measure,
            "revive": self._revive,
            "keep_profiles": self._keep_profiles,
        }.items():
            monkeypatch.setattr(program, name, value)
        monkeypatch.setattr(results, "machine_facts", lambda: MACHINE)
        monkeypatch.setattr(results, "draw", lambda *_: None)
        monkeypatch.setattr(results, "DIRECTORY", directory)
        monkeypatch.setattr(results, "PARTS", directory / "tmp")
        page = directory / "page.md"
        page.write_text(f"{results.BEGIN}\n{results.END}\n")
        monkeypatch.setattr(results.report, "__defaults__", (page,))

    def run(self, **options: Any) -> tuple[int, Run | None, Run | None]:
        """The exit status, and what is in the place of whole runs and in that of parts."""
        given = {"quick": False, "rounds": None, "output": None, "profile": None, "only": "", **options}
        status = program.Conductor(argparse.Namespace(**given)).conduct()
        return status, results.last_run(self.directory), results.last_run(self.directory / "tmp")

    @contextmanager
    def _both(self, *_: object) -> Iterator[dict[str, str]]:
        yield {"barnabas": "ours", "Apache Kafka": "kafka"}

    def _measure(self, case: NamedCase, _: object, rounds: int, budget: Budget) -> Outcome:
        self.asked.append((case.key, rounds))
        trouble = self.troubles.get(case.key)
        if isinstance(trouble, BaseException):
            raise trouble
        found = [] if trouble else [measured(case.key, [110], [100], target=case.metrics[0].target)]
        return Outcome(found, Timing(10.0, rounds), trouble)

    def _revive(self, *_: object) -> list[Any]:
        self.revived += 1
        return []

    def _keep_profiles(self, _measured: object, _cases: object, _server: object, place: Path, _tell: object) -> Any:
        self.profiled.append(place)
        return {}


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Stage:
    return Stage(monkeypatch, tmp_path.resolve())


def cases_of(run: Run | None) -> list[str]:
    assert run is not None
    return [one.case for one in run.measured]


def test_a_whole_run_is_kept_and_gets_into_the_page(stage: Stage) -> None:
    status, whole, part = stage.run()
    assert status == 0
    assert cases_of(whole) == ["start-up", "one", "two", "three"]
    assert part is None
    assert "the case three" in (stage.directory / "page.md").read_text()
    # More rounds where there is a target.
    assert stage.asked == [("one", 5), ("two", 3), ("three", 5)]
    assert stage.profiled == [stage.directory]


def test_a_case_that_fails_does_not_take_the_others_with_it(stage: Stage) -> None:
    stage.troubles["one"] = "TimeoutExpired: not done after 120 s"
    status, whole, _ = stage.run()
    assert status == 1
    assert cases_of(whole) == ["start-up", "two", "three"]
    assert whole is not None
    assert [(one.case, one.reason) for one in whole.failed] == [("one", "TimeoutExpired: not done after 120 s")]
    assert stage.revived == 1


def test_brokers_that_cannot_be_measured_at_the_start_are_measured_in_the_cases(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> list[Any]:
        raise RuntimeError("no answer for 60 s")

    monkeypatch.setattr(program, "start_up_rounds", fail)
    status, whole, _ = stage.run()
    assert status == 1
    assert cases_of(whole) == ["one", "two", "three"]


def test_an_interrupted_run_leaves_what_it_has_and_the_last_whole_one(stage: Stage) -> None:
    stage.run()
    page = (stage.directory / "page.md").read_text()
    stage.troubles["three"] = KeyboardInterrupt()
    status, whole, part = stage.run()
    assert status == program.INTERRUPTED
    assert cases_of(whole) == ["start-up", "one", "two", "three"]
    assert cases_of(part) == ["start-up", "one", "two"]
    assert (stage.directory / "page.md").read_text() == page


def test_a_part_of_the_cases_goes_to_the_place_for_parts(stage: Stage) -> None:
    status, whole, part = stage.run(only="two", quick=True, rounds=1)
    assert status == 0
    assert whole is None
    assert cases_of(part) == ["two"]
    assert stage.asked == [("two", 1)]
    assert not stage.profiled


def test_when_the_time_is_over_cases_are_left_out_and_it_is_told(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "BUDGET_S", 0)
    status, whole, _ = stage.run()
    assert status == 1
    assert not stage.asked
    assert whole is not None
    assert [one.case for one in whole.failed] == ["one", "two", "three"]


def test_the_time_is_estimated_from_the_last_run_of_the_same_kind(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.run(only="e", rounds=1)
    capsys.readouterr()
    stage.cases = stage.cases[:1]
    (stage.directory / results.DOCUMENT).write_text((stage.directory / "tmp" / results.DOCUMENT).read_text())
    stage.run(only="one", rounds=2)
    # Two rounds of ten seconds each, and what is there besides.
    assert "1 cases, about 1:20 minutes" in capsys.readouterr().out
    stage.run(only="one", rounds=2, quick=True)
    assert "1 cases, about 1:14 minutes" in capsys.readouterr().out
