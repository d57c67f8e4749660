"""Disks that fail: errors to the clients, the directory offline, and the rest alive."""

from __future__ import annotations

import doctest
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.common.clock import MockClock
from barnabas.common.errors import KafkaStorageError, OutOfOrderSequenceError
from barnabas.log.dirs import log_dir_failure
from barnabas.log.dirs.log_dir_failure import LogDirFailureChannel, LogDirGuard
from barnabas.log.storage_errors import FileClosedError, disk_access, is_descriptor_shortage
from barnabas.log.unified_log import UnifiedLog
from log_fixtures import LogBox, all_records, append, offsets, read_from


@pytest.fixture
def box(tmp_path: Path) -> LogBox:
    return LogBox(tmp_path)


def no_space(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def read_only(*_: Any, **__: Any) -> Any:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


def broken(*_: Any, **__: Any) -> Any:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("is_wrapped", [True, False])
def test_to_be_out_of_descriptors_takes_no_directory_offline(number: int, is_wrapped: bool) -> None:
    guard = LogDirGuard(LogDirFailureChannel(MockClock()), Path("a"))
    error = OSError(number, os.strerror(number))

    def fail() -> None:
        with guard.watch("reading"):
            if is_wrapped:
                with disk_access("read", Path("a/b")):
                    raise error
            raise error

    for _ in range(2):
        with pytest.raises(KafkaStorageError, match=os.strerror(number)) as raised:
            fail()
        assert is_descriptor_shortage(raised.value)
    assert not guard.channel.offline_log_dirs


def test_doctests() -> None:
    assert doctest.testmod(log_dir_failure).failed == 0


class TestChannel:
    def test_each_directory_comes_once(self) -> None:
        channel = LogDirFailureChannel(MockClock())
        assert channel.maybe_add_offline_log_dir(Path("a"), "broken")
        assert not channel.maybe_add_offline_log_dir(Path("a"), "broken again")
        assert channel.maybe_add_offline_log_dir(Path("b"), "broken as well")
        assert channel.has_offline_log_dir(Path("a"))
        assert not channel.has_offline_log_dir(Path("c"))
        assert channel.take_next_offline_log_dir() == Path("a")
        assert channel.take_next_offline_log_dir() == Path("b")
        assert channel.take_next_offline_log_dir(0) is None
        assert channel.offline_log_dirs == {Path("a"): "broken", Path("b"): "broken as well"}

    def test_waiting(self) -> None:
        clock = MockClock()
        channel = LogDirFailureChannel(clock)
        taken: list[Path | None] = []
        threads = [
            threading.Thread(target=lambda: taken.append(channel.take_next_offline_log_dir())),
            threading.Thread(target=lambda: taken.append(channel.take_next_offline_log_dir(50))),
        ]
        threads[0].start()
        assert clock.await_waiters(1)
        channel.maybe_add_offline_log_dir(Path("a"), "broken")
        threads[0].join(60)
        threads[1].start()
        assert clock.await_waiters(1)
        clock.advance(50)
        threads[1].join(60)
        assert taken == [Path("a"), None]

    def test_closing_ends_the_wait(self) -> None:
        clock = MockClock()
        channel = LogDirFailureChannel(clock)
        taken: list[Path | None] = []
        thread = threading.Thread(target=lambda: taken.append(channel.take_next_offline_log_dir()))
        thread.start()
        assert clock.await_waiters(1)
        channel.close()
        thread.join(60)
        assert taken == [None]


class TestGuard:
    def test_an_error_of_the_system_becomes_one_of_ours(self) -> None:
        channel = LogDirFailureChannel()
        guard = LogDirGuard(channel, Path("data"))
        with pytest.raises(KafkaStorageError, match="flushing") as caught, guard.watch("flushing"):
            broken()
        assert isinstance(caught.value.__cause__, OSError)
        with pytest.raises(KafkaStorageError, match="offline"), guard.watch("flushing"):
            pytest.fail("this should not have been tried")

    def test_what_is_no_failure_of_the_disk_passes(self) -> None:
        channel = LogDirFailureChannel()
        guard = LogDirGuard(channel, Path("data"))
        with pytest.raises(FileClosedError), guard.watch("reading"):
            raise FileClosedError("closed")
        with pytest.raises(OutOfOrderSequenceError), guard.watch("appending"):
            raise OutOfOrderSequenceError
        assert not channel.offline_log_dirs

    def test_the_cause_is_kept(self) -> None:
        guard = LogDirGuard(LogDirFailureChannel(), Path("data"))
        cause = OSError(5, "broken")
        with pytest.raises(KafkaStorageError) as caught, guard.watch("reading"):
            raise KafkaStorageError("no") from cause
        assert caught.value.__cause__ is cause


@pytest.mark.parametrize("failure", [no_space, read_only, broken])
class TestAppend:
    def test_the_directory_goes_offline(
        self, box: LogBox, monkeypatch: pytest.MonkeyPatch, failure: Callable[..., Any]
    ) -> None:
        log, other = box.open(), box.open(name="other-0")
        append(log, b"a")
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", failure)
            with pytest.raises(KafkaStorageError, match=r"00000\.log"):
                append(log, b"b")
        assert box.channel.take_next_offline_log_dir(0) == box.directory
        for attempt in (lambda: append(log, b"c"), lambda: read_from(log), lambda: append(other, b"d"), log.roll):
            with pytest.raises(KafkaStorageError, match="offline"):
                attempt()

    def test_nothing_is_lost_or_there_twice_afterwards(
        self, box: LogBox, monkeypatch: pytest.MonkeyPatch, failure: Callable[..., Any]
    ) -> None:
        log = box.open()
        append(log, b"0", producer_id=1, epoch=0, sequence=0)
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", failure)
            with pytest.raises(KafkaStorageError):
                append(log, b"1", producer_id=1, epoch=0, sequence=1)
        log.close_handlers()
        box.restart_process()
        log = box.open(had_clean_shutdown=False)
        assert append(log, b"0", producer_id=1, epoch=0, sequence=0).is_duplicate
        append(log, b"1", producer_id=1, epoch=0, sequence=1)
        assert offsets(all_records(log)) == [0, 1]


def test_a_disk_that_gets_full_in_the_middle_of_a_batch(box: LogBox, monkeypatch: pytest.MonkeyPatch) -> None:
    log = box.open()
    append(log, b"a")
    real = os.pwrite
    calls = []

    def partly(fd: int, data: Any, position: int) -> int:
        calls.append(position)
        return real(fd, memoryview(data)[:10], position)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", partly)
        patch.setattr("barnabas.log.segment.file_handle._pwritev", no_space)
        with pytest.raises(KafkaStorageError):
            append(log, b"b")
    assert calls
    box.restart_process()
    assert offsets(all_records(box.open(had_clean_shutdown=False))) == [0]


def run(log: UnifiedLog, action: str) -> None:
    match action:
        case "roll":
            log.roll()
        case "flush":
            log.flush()
        case "truncate":
            log.truncate_to(1)
        case "close":
            log.close()
        case "rename":
            log.rename_dir("topic-0.1-delete")
        case "epoch":
            log.maybe_assign_epoch_start_offset(5, log.log_end_offset)
        case "retention":
            log.watermarks.update_high_watermark(log.log_end_offset)
            log.delete_old_segments()


@pytest.mark.parametrize(
    ("action", "call"),
    [
        ("roll", "open"),
        ("flush", "fdatasync"),
        ("truncate", "ftruncate"),
        ("close", "fdatasync"),
        ("rename", "rename"),
        ("epoch", "replace"),
        ("retention", "replace"),
    ],
)
def test_everything_else_that_can_fail(box: LogBox, monkeypatch: pytest.MonkeyPatch, action: str, call: str) -> None:
    if not hasattr(os, call):
        pytest.skip(f"no {call} here")
    log = box.open(box.config(segment_bytes=150, retention_bytes=0))
    for number in range(4):
        append(log, b"%d" % number)
    with monkeypatch.context() as patch:
        patch.setattr(os, call, broken)
        with pytest.raises(KafkaStorageError):
            run(log, action)
    assert box.channel.take_next_offline_log_dir(0) == box.directory


@pytest.mark.parametrize("task", ["flush-log", "delete-file"])
def test_background_work_that_fails(box: LogBox, monkeypatch: pytest.MonkeyPatch, task: str) -> None:
    log = box.open()
    append(log, b"a")
    log.roll()
    if task == "delete-file":
        box.scheduler.tick()
        append(log, b"b")
        log.truncate_to(0)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync" if task == "flush-log" else "unlink", broken)
        with pytest.raises(KafkaStorageError):
            box.scheduler.advance(60_000)
    assert box.channel.take_next_offline_log_dir(0) == box.directory


def test_a_read_that_fails(box: LogBox, monkeypatch: pytest.MonkeyPatch) -> None:
    log = box.open()
    append(log, b"a")
    append(log, b"b")
    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", broken)
        with pytest.raises(KafkaStorageError, match="cannot read"):
            read_from(log)
    assert box.channel.has_offline_log_dir(box.directory)
