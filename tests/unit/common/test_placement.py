"""Where threads run."""

from __future__ import annotations

import os
import threading

import pytest

from barnabas.common.placement import anywhere, on_one_core

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the platform has no affinity")


def test_a_group_is_kept_on_one_core_and_nobody_else_is() -> None:
    before = os.sched_getaffinity(0)
    place = on_one_core()
    found: list[set[int]] = []

    def run() -> None:
        place()
        found.append(os.sched_getaffinity(0))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [{max(before)}] * 3
    assert os.sched_getaffinity(0) == before


def test_a_core_that_is_not_ours_is_refused() -> None:
    with pytest.raises(ValueError, match="core 100000 is not available"):
        on_one_core(100_000)


def test_anywhere_changes_nothing() -> None:
    before = os.sched_getaffinity(0)
    anywhere()
    assert os.sched_getaffinity(0) == before


def test_the_queue_policy_stays_on_one_core_only_under_the_interpreter_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    from barnabas.server.data_plane import HandOff

    monkeypatch.setattr("sys._is_gil_enabled", lambda: True, raising=False)
    assert HandOff.QUEUE.default_placement() is not anywhere
    assert HandOff.DIRECT.default_placement() is anywhere
    monkeypatch.setattr("sys._is_gil_enabled", lambda: False, raising=False)
    assert HandOff.QUEUE.default_placement() is anywhere
