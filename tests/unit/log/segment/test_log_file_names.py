"""The names of a partition's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.log.segment.log_file_names import (
    log_file,
    offset_from_file_name,
    offset_index_file,
    producer_snapshot_file,
    time_index_file,
    transaction_index_file,
    with_changed_suffix,
)

HERE = Path("t-0")


def test_names_sort_like_offsets() -> None:
    assert log_file(HERE, 0).name == "00000000000000000000.log"
    assert log_file(HERE, 2**63 - 1).name == "09223372036854775807.log"
    offsets = [0, 9, 10, 147_001, 2**31, 2**62]
    assert sorted(offsets, key=lambda offset: log_file(HERE, offset).name) == offsets


def test_every_kind_of_file() -> None:
    assert log_file(HERE, 42) == HERE / "00000000000000000042.log"
    assert log_file(HERE, 42, ".swap") == HERE / "00000000000000000042.log.swap"
    assert offset_index_file(HERE, 42, ".deleted") == HERE / "00000000000000000042.index.deleted"
    assert time_index_file(HERE, 42) == HERE / "00000000000000000042.timeindex"
    assert transaction_index_file(HERE, 42) == HERE / "00000000000000000042.txnindex"
    assert producer_snapshot_file(HERE, 42) == HERE / "00000000000000000042.snapshot"


def test_the_offset_in_a_name() -> None:
    assert offset_from_file_name("00000000000000147001.log") == 147_001
    assert offset_from_file_name("00000000000000000000.log.deleted") == 0
    for wrong in ("leader-epoch-checkpoint", "x.log", "-1.log", "1_0.log", " 1.log", ".log", "\u0661.log", ""):
        with pytest.raises(ValueError, match="does not begin with an offset"):
            offset_from_file_name(wrong)


def test_changing_the_suffix() -> None:
    assert with_changed_suffix(HERE / "1.log", "", ".deleted") == HERE / "1.log.deleted"
    assert with_changed_suffix(HERE / "1.log.swap", ".swap", "") == HERE / "1.log"
    with pytest.raises(ValueError, match="does not end in"):
        with_changed_suffix(HERE / "1.log", ".swap", "")
