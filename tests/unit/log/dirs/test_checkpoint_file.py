from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.common.errors import Errors, KafkaStorageError
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.dirs import durable_file
from barnabas.log.dirs.checkpoint_file import CheckpointFile, CorruptCheckpointError, split_line
from barnabas.log.dirs.durable_file import replace_file, sync_file, write_file
from barnabas.log.dirs.leader_epoch_checkpoint import EpochEntry, LeaderEpochCheckpointFile
from barnabas.log.dirs.offset_checkpoint import OffsetCheckpointFile

A0, A1, B7 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b.c-d_e", 7)


@pytest.fixture
def checkpoint(tmp_path: Path) -> OffsetCheckpointFile:
    return OffsetCheckpointFile(tmp_path / "recovery-point-offset-checkpoint")


def test_the_format(checkpoint: OffsetCheckpointFile) -> None:
    checkpoint.write({A0: 5, B7: 2**63 - 1})
    assert checkpoint.path.read_bytes() == b"0\n2\na 0 5\nb.c-d_e 7 9223372036854775807\n"
    assert checkpoint.read() == {A0: 5, B7: 2**63 - 1}
    checkpoint.write({})
    assert checkpoint.path.read_bytes() == b"0\n0\n"
    assert checkpoint.read() == {}


def test_the_format_of_leader_epochs(tmp_path: Path) -> None:
    checkpoint = LeaderEpochCheckpointFile.in_directory(tmp_path)
    checkpoint.write([EpochEntry(0, 0), EpochEntry(3, 120)])
    assert (tmp_path / "leader-epoch-checkpoint").read_bytes() == b"0\n2\n0 0\n3 120\n"
    assert checkpoint.read() == [(0, 0), (3, 120)]
    assert repr(checkpoint).endswith("leader-epoch-checkpoint')")


@settings(deadline=None, max_examples=50)
@given(
    st.dictionaries(
        st.builds(TopicPartition, st.text("abc.-_", min_size=1), st.integers(0, 2**31 - 1)),
        st.integers(-(2**63), 2**63 - 1),
    )
)
def test_what_is_written_reads_back(
    tmp_path_factory: pytest.TempPathFactory, offsets: dict[TopicPartition, int]
) -> None:
    checkpoint = OffsetCheckpointFile(tmp_path_factory.mktemp("checkpoint") / "file")
    checkpoint.write(offsets)
    assert checkpoint.read() == offsets


def test_no_file_and_an_empty_one_have_no_entries(checkpoint: OffsetCheckpointFile) -> None:
    assert checkpoint.read() == {}
    assert not checkpoint.path.exists()
    checkpoint.path.write_bytes(b"")
    assert checkpoint.read() == {}
    checkpoint.path.write_bytes(b"0\n")
    assert checkpoint.read() == {}


def test_other_line_ends_and_blanks(checkpoint: OffsetCheckpointFile) -> None:
    checkpoint.path.write_bytes(b"0\r\n2\ra\t0   5  \na 1 6")
    assert checkpoint.read() == {A0: 5, A1: 6}


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"x\n0\n", "line 1: 'x' is not a whole number"),
        (b"1\n0\n", "version 1, only 0 is known"),
        (b"1\n", "version 1, only 0 is known"),
        (b"0\n\n", "line 2: '' is not"),
        (b"0\n-1\n", "0 entries where there should be -1"),
        (b"0\n2\na 0 5\n", "1 entries where there should be 2"),
        (b"0\n1\na 0 5\na 1 6\n", "2 entries where there should be 1"),
        (b"0\n1\na 0\n", r"line 3 .*should have 3 words"),
        (b"0\n1\na 0 5 6\n", r"line 3 .*should have 3 words"),
        (b"0\n1\n a 0 5\n", r"line 3 .*should have 3 words"),
        (b"0\n1\n\n", r"line 3 .*should have 3 words"),
        (b"0\n1\na zero 5\n", r"line 3 .*'zero' is not a whole number"),
        (b"0\n1\na 2147483648 5\n", "does not fit into 32 bits"),
        (b"0\n1\na 0 9223372036854775808\n", "does not fit into 64 bits"),
        (b"0\n1\na 0 5\xff\n", "byte 9 is not UTF-8"),
        (b"\x00" * 4096, r"line 1: .*\.\.\.' is not a whole number"),
    ],
)
def test_a_broken_file_is_refused_as_a_whole(checkpoint: OffsetCheckpointFile, data: bytes, fault: str) -> None:
    checkpoint.path.write_bytes(data)
    with pytest.raises(CorruptCheckpointError, match=fault) as caught:
        checkpoint.read()
    assert str(checkpoint.path) in str(caught.value)
    assert Errors.for_exception(caught.value) is Errors.KAFKA_STORAGE_ERROR


@settings(deadline=None)
@given(st.binary(max_size=60) | st.text("0123456789 \na", max_size=60).map(str.encode))
def test_any_bytes_give_entries_or_one_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("checkpoint") / "file"
    path.write_bytes(data)
    with suppress(CorruptCheckpointError):
        OffsetCheckpointFile(path).read()


def test_a_line_has_its_words() -> None:
    assert split_line("a  b\tc ", 3) == ["a", "b", "c"]
    with pytest.raises(ValueError, match="2 words"):
        split_line("a b c", 2)


# How a file is replaced


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_the_steps_of_a_replacement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    path = tmp_path / "file"
    path.write_text("old")

    def synced(fd: int) -> None:
        steps.append(f"sync {(tmp_path / 'file.tmp').read_text()}, while the file is {path.read_text()}")

    def directory_synced(directory: Path) -> None:
        steps.append(f"sync of {directory.name} with {names_in(directory)}, the file is {path.read_text()}")

    monkeypatch.setattr(durable_file, "sync_data", synced)
    monkeypatch.setattr(durable_file, "sync_directory", directory_synced)
    replace_file(path, b"new")
    assert steps == [
        "sync new, while the file is old",
        f"sync of {tmp_path.name} with ['file'], the file is new",
    ]


@pytest.mark.parametrize("step", ["write_fully", "sync_data", "os.replace"])
def test_a_failure_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    checkpoint = OffsetCheckpointFile(tmp_path / "file")
    checkpoint.write({A0: 1})
    with monkeypatch.context() as patched:
        patched.setattr(os if step == "os.replace" else durable_file, step.removeprefix("os."), fail)
        with pytest.raises(KafkaStorageError, match=r"cannot write .*file: No space left on device"):
            checkpoint.write({A0: 2})
    assert checkpoint.read() == {A0: 1}
    assert names_in(tmp_path) == ["file"]


def test_a_file_without_its_directory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    checkpoint = LeaderEpochCheckpointFile(tmp_path / "topic-0" / "leader-epoch-checkpoint")
    with pytest.raises(KafkaStorageError, match="No such file or directory"):
        checkpoint.write([EpochEntry(0, 0)])
    with caplog.at_level(logging.WARNING):
        checkpoint.write_if_dir_exists([EpochEntry(0, 0)])
    assert "its directory is gone" in caplog.text
    (tmp_path / "topic-0").mkdir()
    checkpoint.write_if_dir_exists([EpochEntry(0, 0)])
    assert checkpoint.read() == [(0, 0)]


def test_other_failures_of_a_background_write_are_errors(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    checkpoint = LeaderEpochCheckpointFile(tmp_path / "file")
    with pytest.raises(KafkaStorageError, match="cannot write"):
        checkpoint.write_if_dir_exists([])
    with pytest.raises(KafkaStorageError, match="cannot read"):
        checkpoint.read()


def test_write_and_sync_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_file(path, b"long contents", sync=False)
    sync_file(path)
    write_file(path, b"short")
    assert path.read_bytes() == b"short"


def test_repr(tmp_path: Path) -> None:
    assert repr(OffsetCheckpointFile(tmp_path / "x")) == f"OffsetCheckpointFile('{tmp_path}/x')"
    assert repr(CheckpointFile[EpochEntry](tmp_path / "x", 0, None)) == f"CheckpointFile('{tmp_path}/x')"  # type: ignore[arg-type]


# Several directories
