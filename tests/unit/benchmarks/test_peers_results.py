"""What is written of a run: the document, what is made from it, and what an incomplete run leaves."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from benchmarks.peers import results
from benchmarks.peers.budget import Timing
from benchmarks.peers.next_steps import OTHERWISE, STEPS, next_step
from benchmarks.peers.profile_text import INTERPRETER, KERNEL, OTHERS
from benchmarks.peers.rounds import Failed
from benchmarks.peers.run import Kept, Run
from benchmarks.peers.tables import markdown

from unit.benchmarks.peers_fixtures import MACHINE, measured

SLOW = "consume-librdkafka-1024B-12p"


def a_run() -> Run:
    return Run(
        MACHINE,
        [
            measured("fast", [120, 140, 100], [100, 100, 90], target=1.0),
            measured(SLOW, [80, 90, 70], [100, 100, 100], target=1.0),
            measured("lean", [1, 2], [4, 4], more_is_better=False, name="broker CPU"),
        ],
        [Failed("broken", "the case that broke", "RuntimeError: no record came")],
        {"fast": Timing(12.5, 3)},
        {
            SLOW: Kept(f"profiles/{SLOW}.txt", {KERNEL: 61.2, INTERPRETER: 38.4, OTHERS: 0.4}),
            "fast": Kept("profiles/fast.txt", {}),
        },
        seconds=245.4,
        is_whole=True,
    )


def test_a_run_is_read_back_as_it_was_written() -> None:
    written = results.document(a_run())
    read = results.loaded(json.loads(json.dumps(written)))
    assert results.document(read) == written
    assert markdown(read) == markdown(a_run())
    assert written["results"][1]["reached"] is False


def test_the_results_that_are_kept_here_can_be_read() -> None:
    run = results.last_run(results.DIRECTORY)
    assert run is not None
    assert run.is_whole
    assert {one.case for one in run.measured} >= {"start-up", "produce-java-1024B-acks-1-12p", "latency-1000-acks-1"}
    for kept in run.profiles.values():
        assert (results.DIRECTORY / kept.file).exists()


def test_the_page_is_what_is_made_of_the_results_that_are_kept() -> None:
    """Neither was changed without the other."""
    run = results.last_run(results.DIRECTORY)
    assert run is not None
    place = os.path.relpath(results.DIRECTORY, results.PAGE.parent)
    assert f"{results.BEGIN}\n{markdown(run, place)}{results.END}" in results.PAGE.read_text()
    assert (results.DIRECTORY / "peers.md").read_text() == markdown(run)


def test_the_table_has_medians_ratios_and_targets() -> None:
    text = markdown(a_run())
    assert "| the case fast | throughput, MB/s | 120 | 100 | 1.20x (1.11 - 1.40) | at least 1x |" in text
    assert (
        f"| the case {SLOW} | throughput, MB/s | 80 | 100 | 0.80x (0.70 - 0.90) | at least 1x, **not reached** |"
        in text
    )
    assert "| the case lean | broker CPU, MB/s | 1.5 | 4 | 0.38x (0.25 - 0.50) |  |" in text
    assert "Medians of 2 to 3 rounds" in text
    assert "2 cores (A Processor), 25 GB" in text
    assert "confluent-kafka 2.16.1" in text
    assert "The run took 4:05 minutes." in text


@pytest.mark.parametrize(("place", "link"), [("", ""), ("../benchmarks/results", "../benchmarks/results/")])
def test_what_is_not_reached_has_its_figure_its_profile_and_a_next_step(place: str, link: str) -> None:
    lines = markdown(a_run(), place).splitlines()
    (row,) = [line for line in lines[lines.index("Not reached:") :] if line.startswith(f"| the case {SLOW}")]
    assert "0.80x (at least 1x)" in row
    assert f"[profile]({link}profiles/{SLOW}.txt): kernel 61 %, interpreter 38 % |" in row
    assert row.endswith(f"| {next_step(SLOW, 'throughput')} |")
    assert f"- the case fast: [profile]({link}profiles/fast.txt)" in lines


def test_a_run_in_which_all_is_well_has_no_such_table() -> None:
    run = Run(MACHINE, [measured("fast", [120], [100], target=1.0)], is_whole=True)
    text = markdown(run)
    assert "reached" not in text.lower()
    assert "Failed" not in text
    assert "Not all cases" not in text


def test_what_failed_is_told() -> None:
    assert "- the case that broke: RuntimeError: no record came" in markdown(a_run())


def test_a_target_that_is_missed_has_a_next_step_in_every_case_with_one() -> None:
    for cases, metrics, text in STEPS:
        assert text
        assert next_step(cases.replace("*", "x"), metrics.replace("*", "x")) != OTHERWISE
    assert next_step("no such case", "no such metric") == OTHERWISE


def test_profiles_of_an_earlier_run_stay_and_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "draw", lambda *_: None)
    first = a_run()
    place = tmp_path / "profiles"
    place.mkdir()
    (place / f"{SLOW}.txt").write_text("a profile")
    results.write(first, tmp_path)
    second = a_run()
    second.profiles = {}
    second.timings = {"lean": Timing(3.0, 2)}
    results.write(second, tmp_path)
    found = results.last_run(tmp_path)
    assert found is not None
    # The other one has no file any more.
    assert set(found.profiles) == {SLOW}
    assert found.profiles[SLOW].is_earlier
    assert "(of an earlier run)" in (tmp_path / "peers.md").read_text()
    assert found.timings == {"fast": Timing(12.5, 3), "lean": Timing(3.0, 2)}


def test_the_page_gets_the_text_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{results.BEGIN}\nold\n{results.END}\nafter\n")
    results.put_into_page("new\n", page)
    assert page.read_text() == f"before\n{results.BEGIN}\nnew\n{results.END}\nafter\n"
    page.write_text("no marks")
    with pytest.raises(ValueError, match="no place for the results"):
        results.put_into_page("new\n", page)


def test_a_part_of_a_run_does_not_get_into_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "draw", lambda *_: None)
    monkeypatch.setattr(results, "DIRECTORY", tmp_path.resolve())
    page = tmp_path / "page.md"
    empty = f"{results.BEGIN}\n{results.END}\n"
    page.write_text(empty)
    run = a_run()
    run.is_whole = False
    (tmp_path / results.DOCUMENT).write_text(json.dumps(results.document(run)))
    results.report(tmp_path, page)
    assert page.read_text() == empty
    run.is_whole = True
    (tmp_path / results.DOCUMENT).write_text(json.dumps(results.document(run)))
    results.report(tmp_path, page)
    assert "the case fast" in page.read_text()


def test_charts_are_drawn_of_any_part(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    results.write(a_run(), tmp_path)
    assert {path.name for path in tmp_path.glob("*.svg")} == {"ratios.svg", "throughput.svg"}
    assert {path.name for path in tmp_path.glob("*.png")} == {"ratios.png", "throughput.png"}
