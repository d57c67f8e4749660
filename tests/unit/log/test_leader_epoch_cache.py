from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.common.errors import KafkaStorageError
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.dirs.leader_epoch_checkpoint import EpochEntry, LeaderEpochCheckpointFile
from barnabas.log.leader_epoch_cache import LeaderEpochFileCache

PARTITION = TopicPartition("topic", 0)
UNDEFINED = (-1, -1)


class Background:
    """Keeps tasks until they are told to run."""

    def __init__(self) -> None:
        self.tasks: list[tuple[str, Callable[[], None]]] = []

    def __call__(self, name: str, task: Callable[[], None]) -> None:
        self.tasks.append((name, task))

    def run(self) -> None:
        tasks, self.tasks = self.tasks, []
        for _, task in tasks:
            task()


class Cache(LeaderEpochFileCache):
    """A cache with its file in a directory, and its background tasks at hand."""

    def __init__(self, directory: Path, *entries: tuple[int, int]) -> None:
        self.background = Background()
        self.file = LeaderEpochCheckpointFile.in_directory(directory)
        super().__init__(PARTITION, self.file, self.background)
        self.assign_all(EpochEntry(*entry) for entry in entries)


def test_nothing_is_known_of_an_empty_log(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    assert cache.entries == ()
    assert [cache.latest_entry, cache.latest_epoch, cache.earliest_entry] == [None] * 3
    assert [cache.previous_epoch(), cache.previous_epoch(3), cache.next_epoch(3)] == [None] * 3
    assert [cache.entry_for(3), cache.previous_entry(3)] == [None] * 2
    assert cache.epoch_for_offset(5) is None
    assert cache.end_offset_for(0, 10) == UNDEFINED
    assert cache.end_offset_for(-1, 10) == UNDEFINED
    assert not cache.file.path.exists()


def test_an_epoch_is_on_disk_when_assign_returns(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.assign(0, 0)
    cache.assign(2, 100)
    assert cache.file.read() == [(0, 0), (2, 100)]
    assert Cache(tmp_path).entries == ((0, 0), (2, 100))


def test_batches_of_the_present_epoch_cost_no_write(tmp_path: Path) -> None:
    cache = Cache(tmp_path, (2, 100))
    cache.file.path.unlink()
    cache.assign(2, 100)
    cache.assign(2, 5000)
    assert cache.entries == ((2, 100),)
    assert not cache.file.path.exists()


@pytest.mark.parametrize(
    ("entry", "result"),
    [
        ((6, 130), [(0, 0), (2, 100), (5, 120), (6, 130)]),
        ((6, 120), [(0, 0), (2, 100), (6, 120)]),  # the leader of epoch 5 wrote nothing
        ((6, 110), [(0, 0), (2, 100), (6, 110)]),
        ((6, 50), [(0, 0), (6, 50)]),
        ((5, 110), [(0, 0), (2, 100), (5, 110)]),
        ((3, 130), [(0, 0), (2, 100), (3, 130)]),
        ((1, 10), [(0, 0), (1, 10)]),
        ((0, 0), [(0, 0)]),
    ],
)
def test_contradicting_epochs_go(tmp_path: Path, entry: tuple[int, int], result: list[tuple[int, int]]) -> None:
    cache = Cache(tmp_path, (0, 0), (2, 100), (5, 120))
    cache.assign(*entry)
    assert list(cache.entries) == result
    assert cache.file.read() == result


def test_only_surprising_removals_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = Cache(tmp_path, (0, 0), (2, 100))
    with caplog.at_level(logging.WARNING):
        cache.assign(3, 100)
        assert not caplog.records
        cache.assign(4, 90)
    assert "contradict" in caplog.text


def test_several_epochs_at_once(tmp_path: Path) -> None:
    cache = Cache(tmp_path, (5, 120), (6, 130))
    # The first takes the second away, which then is needed although it looked as if it were there.
    cache.assign_all([EpochEntry(5, 110), EpochEntry(6, 130)])
    assert cache.entries == ((5, 110), (6, 130))
    assert cache.file.read() == [(5, 110), (6, 130)]
    cache.assign_all([])
    with pytest.raises(ValueError, match="negative"):
        cache.assign_all([EpochEntry(7, 140), EpochEntry(8, -1)])
    assert cache.latest_epoch == 6


@pytest.mark.parametrize("entry", [(-1, 0), (0, -1)])
def test_negative_numbers_are_refused(tmp_path: Path, entry: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="negative"):
        Cache(tmp_path).assign(*entry)


@pytest.mark.parametrize(
    ("requested", "expected"),
    [
        (-1, UNDEFINED),
        (0, (0, 10)),  # deleted with its records: it must end where the log now starts, at the latest
        (2, (2, 100)),
        (3, (2, 100)),
        (4, (4, 120)),
        (6, (4, 120)),
        (7, (7, 500)),  # the latest: ends with the log
        (8, UNDEFINED),
    ],
)
def test_the_end_of_an_epoch(tmp_path: Path, requested: int, expected: tuple[int, int]) -> None:
    assert Cache(tmp_path, (2, 10), (4, 100), (7, 120)).end_offset_for(requested, 500) == expected


def test_questions(tmp_path: Path) -> None:
    cache = Cache(tmp_path, (2, 10), (4, 100), (7, 120))
    assert [cache.epoch_for_offset(offset) for offset in (9, 10, 99, 100, 119, 120, 10**9)] == [None, 2, 2, 4, 4, 7, 7]
    assert cache.latest_entry == (7, 120)
    assert cache.latest_epoch == 7
    assert cache.earliest_entry == (2, 10)
    assert cache.previous_epoch() == 4
    assert [cache.previous_epoch(epoch) for epoch in (2, 3, 4, 9)] == [None, 2, 2, 7]
    assert cache.previous_entry(5) == (4, 100)
    assert [cache.next_epoch(epoch) for epoch in (-1, 2, 3, 7)] == [2, 4, 4, None]
    assert [cache.entry_for(epoch) for epoch in (2, 3)] == [(2, 10), None]
    assert repr(cache) == "LeaderEpochFileCache(topic-0: 2@10, 4@100, 7@120)"


def test_the_epochs_of_a_part(tmp_path: Path) -> None:
    cache = Cache(tmp_path, (2, 10), (4, 100), (7, 120))
    assert cache.entries_in_range(50, 120) == ((2, 50), (4, 100))
    assert cache.entries_in_range(0, 101) == ((2, 10), (4, 100))
    assert cache.entries_in_range(-1, -1) == cache.entries
    assert cache.entries_in_range(100, 100) == ()
    assert cache.entries == ((2, 10), (4, 100), (7, 120))


@pytest.mark.parametrize(
    ("end_offset", "result"),
    [
        (121, [(2, 10), (4, 100), (7, 120)]),
        (120, [(2, 10), (4, 100)]),
        (11, [(2, 10)]),
        (10, []),
        (-1, [(2, 10), (4, 100), (7, 120)]),
    ],
)
def test_truncation_at_the_end(tmp_path: Path, end_offset: int, result: list[tuple[int, int]]) -> None:
    cache = Cache(tmp_path, (2, 10), (4, 100), (7, 120))
    cache.truncate_from_end(end_offset)
    assert list(cache.entries) == result
    assert len(cache.background.tasks) == (0 if len(result) == 3 else 1)
    cache.background.run()
    assert cache.file.read() == result


@pytest.mark.parametrize(
    ("start_offset", "result"),
    [
        (5, [(2, 10), (4, 100), (7, 120)]),
        (10, [(2, 10), (4, 100), (7, 120)]),
        (11, [(2, 11), (4, 100), (7, 120)]),
        (100, [(4, 100), (7, 120)]),
        (119, [(4, 119), (7, 120)]),
        (500, [(7, 500)]),
    ],
)
def test_truncation_at_the_start(tmp_path: Path, start_offset: int, result: list[tuple[int, int]]) -> None:
    cache = Cache(tmp_path, (2, 10), (4, 100), (7, 120))
    cache.truncate_from_start(start_offset)
    assert list(cache.entries) == result
    cache.background.run()
    assert cache.file.read() == result


def test_a_truncation_is_written_down_in_the_background(tmp_path: Path) -> None:
    cache = Cache(tmp_path, (2, 10), (4, 100))
    cache.truncate_from_end(100)
    assert cache.file.read() == [(2, 10), (4, 100)]
    assert cache.background.tasks[0][0] == "leader-epoch-cache-flush-topic-0"
    cache.assign(5, 200)  # the task must write what is there when it runs, not what was there when it was planned
    cache.background.run()
    assert cache.file.read() == [(2, 10), (5, 200)]


def test_the_epoch_of_an_append_is_written_down_in_the_background_or_by_a_flush(tmp_path: Path) -> None:
    cache = Cache(tmp_path, (0, 0))
    cache.flush()
    cache.assign_later(2, 100)
    assert cache.entries == ((0, 0), (2, 100))
    assert cache.file.read() == [(0, 0)]
    cache.background.run()
    assert cache.file.read() == [(0, 0), (2, 100)]
    cache.assign_later(3, 200)
    cache.flush()
    assert cache.file.read() == [(0, 0), (2, 100), (3, 200)]
    cache.file.path.unlink()
    cache.background.run()
    cache.flush()
    cache.assign_later(3, 300)
    assert not cache.background.tasks
    assert not cache.file.path.exists(), "nothing was left to be written"


def test_what_could_not_be_written_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(tmp_path)
    cache.assign_later(2, 100)
    with monkeypatch.context() as broken:
        for name in ("write", "write_if_dir_exists"):
            broken.setattr(LeaderEpochCheckpointFile, name, lambda *_: (_ for _ in ()).throw(KafkaStorageError("full")))
        with pytest.raises(KafkaStorageError):
            cache.background.run()
        with pytest.raises(KafkaStorageError):
            cache.flush()
    cache.flush()
    assert cache.file.read() == [(2, 100)]


def test_a_disk_that_is_waited_for_keeps_nobody_from_the_next_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache(tmp_path)
    cache.assign_later(2, 100)
    write = LeaderEpochCheckpointFile.write
    written = []

    def slow(file: LeaderEpochCheckpointFile, entries: tuple[EpochEntry, ...]) -> None:
        written.append(entries)
        if len(written) == 1:
            cache.assign_later(3, 200)  # it would not return if it had to wait for this write
        write(file, entries)

    monkeypatch.setattr(LeaderEpochCheckpointFile, "write", slow)
    cache.flush()
    assert cache.file.read() == [(2, 100)]
    cache.flush()
    assert cache.file.read() == [(2, 100), (3, 200)]


def test_a_flush_waits_for_a_write_in_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After it, records of the epoch count as flushed, and recovery does not look for the epoch in them."""
    cache = Cache(tmp_path)
    cache.assign_later(2, 100)
    write = LeaderEpochCheckpointFile.write_if_dir_exists
    found: list[list[EpochEntry]] = []

    def flush() -> None:
        cache.flush()
        found.append(cache.file.read())

    flusher = threading.Thread(target=flush)

    def slow(file: LeaderEpochCheckpointFile, entries: tuple[EpochEntry, ...]) -> None:
        flusher.start()
        flusher.join(0.1)
        write(file, entries)

    monkeypatch.setattr(LeaderEpochCheckpointFile, "write_if_dir_exists", slow)
    cache.background.run()
    flusher.join()
    assert found == [[(2, 100)]]


def test_a_background_write_after_the_end_of_the_topic_is_no_error(tmp_path: Path) -> None:
    directory = tmp_path / "topic-0"
    directory.mkdir()
    cache = Cache(directory, (2, 10), (4, 100))
    cache.truncate_from_end(100)
    directory.rename(tmp_path / "topic-0.deleted")
    cache.background.run()
    with pytest.raises(KafkaStorageError):
        cache.assign(5, 200)


def test_a_renamed_directory(tmp_path: Path) -> None:
    directory = tmp_path / "topic-0"
    directory.mkdir()
    cache = Cache(directory, (2, 10))
    renamed = directory.rename(tmp_path / "topic-0.future")
    cache.move_to(LeaderEpochCheckpointFile.in_directory(renamed))
    cache.assign(4, 100)
    assert LeaderEpochCheckpointFile.in_directory(renamed).read() == [(2, 10), (4, 100)]
    assert not directory.exists()


def test_clear(tmp_path: Path) -> None:
    cache = Cache(tmp_path, (2, 10))
    cache.clear()
    assert cache.entries == ()
    assert cache.file.read() == [(2, 10)]
    cache.clear_and_flush()
    assert cache.file.read() == []


def test_a_file_that_is_not_monotonic_is_put_right(tmp_path: Path) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n4\n0 0\n4 100\n3 110\n5 105\n")
    assert Cache(tmp_path).entries == ((0, 0), (5, 105))


# A model: the epoch of every single offset, which is what the list of starts stands for

END = 40
Model = dict[int, int]


def starts_in(model: Model) -> dict[int, int]:
    return {epoch: min(offset for offset, of in model.items() if of == epoch) for epoch in sorted(set(model.values()))}


def with_only(starts: dict[int, int]) -> Model:
    """The model of these epochs alone: each of them goes on up to the next one."""
    return {
        offset: max(epoch for epoch, start in starts.items() if start <= offset)
        for offset in range(min(starts.values(), default=END), END)
    }


def assigned(model: Model, epoch: int, start: int) -> Model:
    starts = starts_in(model)
    if starts and epoch == max(starts) and start >= starts[epoch]:
        return model
    older = {known: at for known, at in starts.items() if known < epoch and at < start}
    return {**with_only(older), **dict.fromkeys(range(start, END), epoch)}


def end_of(model: Model, epoch: int) -> tuple[int, int]:
    starts = starts_in(model)
    if not starts or epoch > max(starts):
        return UNDEFINED
    if epoch == max(starts):
        return epoch, END
    return (
        max((known for known in starts if known <= epoch), default=epoch),
        min(start for known, start in starts.items() if known > epoch),
    )


EPOCHS, OFFSETS = st.integers(0, 8), st.integers(0, 30)
STEPS = st.one_of(
    st.tuples(st.just("assign"), EPOCHS, OFFSETS),
    st.tuples(st.just("truncate_from_start"), OFFSETS),
    st.tuples(st.just("truncate_from_end"), OFFSETS),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(STEPS, max_size=15))
def test_the_model_says_the_same(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[Any, ...]]) -> None:
    cache = Cache(tmp_path_factory.mktemp("epochs"))
    model: Model = {}
    for name, *arguments in steps:
        getattr(cache, name)(*arguments)
        if name == "assign":
            model = assigned(model, *arguments)
        elif name == "truncate_from_start":
            model = {offset: epoch for offset, epoch in model.items() if offset >= arguments[0]}
        else:
            model = with_only({epoch: at for epoch, at in starts_in(model).items() if at < arguments[0]})
        assert list(cache.entries) == list(starts_in(model).items())
        assert [cache.epoch_for_offset(offset) for offset in range(END)] == [model.get(o) for o in range(END)]
        assert [cache.end_offset_for(epoch, END) for epoch in range(10)] == [end_of(model, e) for e in range(10)]
    cache.background.run()
    assert tuple(cache.file.read()) == cache.entries
