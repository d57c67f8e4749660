"""Files that need not outlive the process are not synced; all others are."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.embedded import EmbeddedBroker
from barnabas.log.dirs.durable_file import replace_file, sync_directory, sync_file, write_file
from barnabas.log.dirs.scratch_directories import declare_scratch, forget_scratch, is_scratch
from barnabas.log.segment.file_handle import FileHandle, sync_data
from barnabas.raft.client import OffsetAndEpoch
from barnabas.raft.snapshot_files import FileRawSnapshotWriter

SYNCS = 3 if sys.platform == "darwin" else 8
"""Of `write_in_all_ways`; on macOS only those of directories go by ``fsync``."""


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was synced, by path."""
    seen: list[str] = []

    def noted(sync: Callable[[int], None]) -> Callable[[int], None]:
        def call(fd: int) -> None:
            seen.append(str(Path(f"/proc/self/fd/{fd:d}").readlink()) if Path("/proc/self/fd").exists() else "a file")
            sync(fd)

        return call

    for name in ("fsync", "fdatasync"):
        if hasattr(os, name):
            monkeypatch.setattr(os, name, noted(getattr(os, name)))
    return seen


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "scratch"
    directory.mkdir()
    declare_scratch(directory)
    yield directory
    forget_scratch(directory)


def write_in_all_ways(directory: Path) -> None:
    """Everything that syncs."""
    replace_file(directory / "replaced", b"1")
    write_file(directory / "written", b"2")
    sync_file(directory / "written")
    sync_directory(directory)
    sync_data(FileHandle.open(directory / "opened", os.O_RDWR | os.O_CREAT))
    writer = FileRawSnapshotWriter.create(directory, OffsetAndEpoch(1, 1))
    writer.append(b"3")
    writer.freeze()


def test_a_scratch_directory_is_not_synced_and_has_all_the_same(scratch: Path, syncs: list[str]) -> None:
    write_in_all_ways(scratch)
    assert syncs == []
    assert (scratch / "replaced").read_bytes() == b"1"
    assert (scratch / "written").read_bytes() == b"2"


def test_others_are_synced_meanwhile(scratch: Path, syncs: list[str]) -> None:
    beside = scratch.with_name("scratch-not")  # its name begins with the other's
    beside.mkdir()
    write_in_all_ways(beside)
    assert len(syncs) == SYNCS


def test_what_is_forgotten_is_synced_again(scratch: Path, syncs: list[str]) -> None:
    forget_scratch(scratch)
    write_in_all_ways(scratch)
    assert len(syncs) == SYNCS


def test_what_is_in_it(scratch: Path) -> None:
    assert is_scratch(scratch)
    assert is_scratch(scratch / "topic-0" / "00000000000000000000.log")
    assert is_scratch(str(scratch / "a"))
    assert not is_scratch(scratch.parent)
    assert not is_scratch(f"{scratch}-not")


def test_an_embedded_broker_syncs_only_what_it_is_to_keep(tmp_path: Path, syncs: list[str]) -> None:
    """Syncs would be most of what a broker for one test takes."""
    with EmbeddedBroker() as broker:
        temporary = broker.data_dir
        assert is_scratch(temporary)
        with EmbeddedBroker(tmp_path / "kept"):
            pass
        assert len(syncs) > 10, "one that is given a place does"
    assert not [path for path in syncs if path.startswith(str(temporary))]
    assert not is_scratch(temporary), "it is gone, and its name may be somebody else's"
