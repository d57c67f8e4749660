from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.common.sorted_map import SortedMap

KEYS = st.integers(-20, 20)


@given(st.lists(st.tuples(st.booleans(), KEYS)), KEYS)
def test_it_is_a_dictionary_in_order(changes: list[tuple[bool, int]], probe: int) -> None:
    model: dict[int, str] = {}
    sorted_map = SortedMap[str]()
    for number, (is_removal, key) in enumerate(changes):
        if is_removal:
            assert sorted_map.pop(key) == model.pop(key, None)
        else:
            sorted_map[key] = model[key] = f"value {number}"

    keys = sorted(model)
    assert list(sorted_map) == keys
    assert len(sorted_map) == len(keys)
    assert sorted_map.values() == [model[key] for key in keys]
    assert sorted_map.first() == (model[keys[0]] if keys else None)
    assert sorted_map.last() == (model[keys[-1]] if keys else None)
    assert sorted_map.get(probe) == model.get(probe)
    assert (probe in sorted_map) == (probe in model)
    assert sorted_map.keys_below(probe) == [key for key in keys if key < probe]
    assert sorted_map.floor(probe) == next((model[key] for key in reversed(keys) if key <= probe), None)


def test_clear_and_text() -> None:
    sorted_map = SortedMap[str]()
    sorted_map[5] = "b"
    sorted_map[1] = "a"
    assert sorted_map[5] == "b"
    assert repr(sorted_map) == "SortedMap({1: 'a', 5: 'b'})"
    sorted_map.clear()
    assert not len(sorted_map)
    assert sorted_map.first() is None
