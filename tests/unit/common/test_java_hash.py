from __future__ import annotations

import pytest

from barnabas.common.java_hash import java_hash_code, partition_for


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("group", 98629247),
        ("polygenelubricants", -2147483648),
        ("é", 233),
        ("𝄞", 1772394),
    ],
)
def test_hash_codes(text: str, expected: int) -> None:
    assert java_hash_code(text) == expected


def test_the_absolute_value_counts() -> None:
    assert partition_for("group", 50) == 47
    assert java_hash_code("consumer-group") == -1738392088
    assert partition_for("consumer-group", 50) == 38, "dropping the sign bit would make it another"
    assert partition_for("polygenelubricants", 50) == 0
