"""Stopping goes on after a part that fails."""

from __future__ import annotations

import pytest

from barnabas.broker.node.stop_steps import run_steps, step


def test_every_step_is_taken_in_order(caplog: pytest.LogCaptureFixture) -> None:
    taken: list[str] = []

    def fail() -> None:
        taken.append("fails")
        raise OSError("the disk is gone")

    run_steps([lambda: taken.append("first"), fail, None, lambda: taken.append("last")])
    assert taken == ["first", "fails", "last"]
    assert "could not be stopped in good order" in caplog.text
    assert "the disk is gone" in caplog.text


def test_a_part_that_is_not_there_has_no_step() -> None:
    part: list[int] | None = [1]
    run_steps([step(part, lambda it: it.clear())])
    assert part == []
    assert step(None, lambda it: it.clear()) is None
