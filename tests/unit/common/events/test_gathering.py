"""One answer made of many."""

from __future__ import annotations

import pytest

from barnabas.common.events.gathering import Gathering


def test_all_is_told_when_the_last_value_has_come() -> None:
    told: list[dict[str, int]] = []
    gathering: Gathering[str, int] = Gathering(["a", "b"], told.append)
    gathering.add("b", 2)
    gathering.add("a", 1)
    assert not told, "who asks is not done asking"
    gathering.release()
    assert told == [{"a": 1, "b": 2}]
    assert list(told[0]) == ["a", "b"], "in the order of the questions"


def test_a_value_may_come_after_all_questions() -> None:
    told: list[dict[str, int]] = []
    gathering: Gathering[str, int] = Gathering(["a"], told.append)
    gathering.release()
    gathering.add("a", 1)
    assert told == [{"a": 1}]


def test_without_keys_there_is_a_result() -> None:
    told: list[dict[str, int]] = []
    Gathering[str, int]([], told.append).release()
    assert told == [{}]


def test_a_key_is_told_of_once() -> None:
    gathering: Gathering[str, int] = Gathering(["a", "b"], lambda _: None)
    gathering.add("a", 1)
    with pytest.raises(ValueError, match="'a'"):
        gathering.add("a", 2)
