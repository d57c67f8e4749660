"""Our storage files and rules beside Apache Kafka's: each reads what the other writes, and both decide the same."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from barnabas.common.clock import MockClock
from barnabas.common.config_def import ConfigError, Importance, Type, convert_to_string, parse_type
from barnabas.common.errors import ApiError, InvalidConfigurationError
from barnabas.common.identifiers import uuid_from_string, uuid_to_string
from barnabas.common.properties import PropertiesError, format_properties, parse_properties
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.append_origin import AppendOrigin
from barnabas.log.config.log_config import validate_topic_config
from barnabas.log.config.log_config_def import LOG_CONFIG_DEF
from barnabas.log.config.server_log_config import SERVER_LOG_CONFIG_DEF, TOPIC_CONFIG_SYNONYMS
from barnabas.log.dirs.clean_shutdown_file import CleanShutdownFile
from barnabas.log.dirs.leader_epoch_checkpoint import EpochEntry, LeaderEpochCheckpointFile
from barnabas.log.dirs.meta_properties import META_PROPERTIES_FILE, MetaProperties
from barnabas.log.dirs.offset_checkpoint import OffsetCheckpointFile
from barnabas.log.dirs.partition_metadata_file import PartitionMetadataFile
from barnabas.log.leader_epoch_cache import LeaderEpochFileCache
from barnabas.log.producers.producer_snapshot import read_snapshot, write_snapshot
from barnabas.log.producers.producer_state_entry import BatchMetadata, ProducerStateEntry
from barnabas.log.producers.producer_state_manager import ProducerStateManager
from barnabas.records.control import ControlRecordType, EndTransactionMarker
from oracles.java import OracleError, OracleUnavailableError
from oracles.storage import StorageOracle
from unit.log.producers.producer_samples import PARTITION, entry, new_config

pytestmark = pytest.mark.java

DIRECTORY_ID = "vZ1Jk0PQSzKdDlRyjXm2Gg"
SLOW = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def oracle() -> Iterator[StorageOracle]:
    try:
        running = StorageOracle()
    except OracleUnavailableError as reason:
        if os.environ.get("CI") == "true":
            pytest.fail(f"the storage oracle is not available: {reason}")
        pytest.skip(f"the storage oracle is not available: {reason}")
    with running:
        yield running


# Files


def as_list(state: ProducerStateEntry) -> list[Any]:
    return [
        state.producer_id,
        state.producer_epoch,
        state.coordinator_epoch,
        state.last_timestamp,
        state.current_txn_first_offset,
        [list(batch) for batch in state.batches],
    ]


SNAPSHOT = [
    entry(1, BatchMetadata(9, 9, 9, 4), epoch=2, coordinator_epoch=3, timestamp=4),
    entry(7, epoch=0, timestamp=4, txn_first_offset=33),
    entry(2**62, BatchMetadata(2**31 - 1, 2**62, 2**31 - 1, 2**50), epoch=32767, timestamp=2**50, txn_first_offset=0),
]


def test_producer_snapshots(oracle: StorageOracle, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "00000000000000000005.snapshot", tmp_path / "00000000000000000006.snapshot"
    write_snapshot(ours, SNAPSHOT)
    assert oracle.read_snapshot(ours) == [as_list(state) for state in SNAPSHOT]
    oracle.write_snapshot(theirs, [as_list(state) for state in SNAPSHOT])
    assert read_snapshot(theirs) == SNAPSHOT
    assert theirs.read_bytes() == ours.read_bytes()


def test_leader_epoch_checkpoints(oracle: StorageOracle, tmp_path: Path) -> None:
    ours, theirs = LeaderEpochCheckpointFile(tmp_path / "ours"), LeaderEpochCheckpointFile(tmp_path / "theirs")
    for entries in ([], [EpochEntry(0, 0)], [EpochEntry(0, 0), EpochEntry(2**31 - 1, 2**63 - 1)]):
        ours.write(entries)
        assert oracle.read_epochs(ours.path) == [list(item) for item in entries]
        oracle.write_epochs(theirs.path, [list(item) for item in entries])
        assert theirs.read() == entries
        assert theirs.path.read_bytes() == ours.path.read_bytes()


def test_offset_checkpoints(oracle: StorageOracle, tmp_path: Path) -> None:
    ours, theirs = OffsetCheckpointFile(tmp_path / "ours"), OffsetCheckpointFile(tmp_path / "theirs")
    offsets = {TopicPartition("a.b-c_d", 0): 5, TopicPartition("__consumer_offsets", 49): 2**63 - 1}
    ours.write(offsets)
    assert sorted(oracle.read_offsets(ours.path)) == sorted([*key, offset] for key, offset in offsets.items())
    oracle.write_offsets(theirs.path, [[*key, offset] for key, offset in offsets.items()])
    assert theirs.read() == offsets


@pytest.mark.parametrize(
    "data",
    [b"", b"0\n", b"0\n0\n", b"0\n1\na 0 5", b"0\r\n1\r\na\t0  5 \r\n", b"1\n0\n", b"0\n2\na 0 5\n", b"0\n1\na 0\n",
     b"0\n1\n a 0 5\n", b"0\n1\na 0 5 6\n", b"0\n1\na x 5\n", b"0\n1\na 0 9223372036854775808\n", b"0\nx\n", b" 0\n0\n",
     b"0\n1\n\n", b"+0\n0\n"],
)  # fmt: skip
def test_checkpoints_that_are_almost_right(oracle: StorageOracle, tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(data)
    ours = outcome(lambda: sorted([*key, offset] for key, offset in OffsetCheckpointFile(path).read().items()))
    assert ours == outcome(lambda: sorted(oracle.read_offsets(path)))


def outcome(action: Callable[[], Any]) -> Any:
    try:
        return action()
    except (ApiError, OracleError):
        return "refused"


def test_meta_properties(oracle: StorageOracle, tmp_path: Path) -> None:
    path = tmp_path / META_PROPERTIES_FILE
    ours = MetaProperties(1, "MkU3OEVBNTcwNTJENDM2Qg", 7, uuid_from_string(DIRECTORY_ID))
    ours.write(tmp_path)
    assert oracle.read_meta(path) == [1, "MkU3OEVBNTcwNTJENDM2Qg", 7, DIRECTORY_ID]
    oracle.write_meta(path, 1, "some cluster: =#é", 8, DIRECTORY_ID)
    theirs = MetaProperties.read(tmp_path)
    assert theirs is not None
    assert theirs.node_id == 8
    # Kafka writes the file in UTF-8 and reads it in ISO 8859-1, so we agree with its reader.
    assert [theirs.version, theirs.cluster_id] == oracle.read_meta(path)[:2]
    MetaProperties(0, None, None).write(tmp_path)
    assert oracle.read_meta(path) == [0, None, None, None]


def test_partition_metadata(oracle: StorageOracle, tmp_path: Path) -> None:
    file = PartitionMetadataFile.in_directory(tmp_path)
    file.record(uuid_from_string(DIRECTORY_ID))
    file.maybe_flush()
    data = file.path.read_bytes()
    assert oracle.read_partition_metadata(file.path) == [0, DIRECTORY_ID]
    file.delete()
    oracle.write_partition_metadata(file.path, DIRECTORY_ID)
    assert file.path.read_bytes() == data
    assert uuid_to_string(file.read().topic_id) == DIRECTORY_ID


def test_clean_shutdown_files(oracle: StorageOracle, tmp_path: Path) -> None:
    file = CleanShutdownFile(tmp_path)
    file.write(8141)
    data = file.path.read_bytes()
    assert oracle.read_clean_shutdown(tmp_path) == 8141
    oracle.write_clean_shutdown(tmp_path, 8141)
    assert file.path.read_bytes() == data
    oracle.write_clean_shutdown(tmp_path, -1)
    assert file.read() == -1


# Properties and configuration


@settings(SLOW, max_examples=400)
@given(st.text("ab=: \t\f\\#!\r\nu0041d8é\x0b", max_size=30))
@example("\\")
@example("\\\n")
@example("a\\\n  \\\n b")
@example("\\\n#a\n\\\n\nb")
def test_properties_files(oracle: StorageOracle, text: str) -> None:
    data = text.encode("iso-8859-1")
    try:
        ours: Any = parse_properties(text)
    except PropertiesError as error:
        if "half of a pair" in str(error):
            return  # which Java lets be
        ours = "refused"
    assert ours == outcome(lambda: oracle.load_properties(data))


@SLOW
@given(st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=4), st.lists(st.text(max_size=5), max_size=2))
def test_properties_that_we_write(oracle: StorageOracle, properties: dict[str, str], comments: list[str]) -> None:
    assert oracle.load_properties(format_properties(properties, comments).encode("ascii")) == properties


@pytest.mark.parametrize("kind", [Type.BOOLEAN, Type.STRING, Type.INT, Type.SHORT, Type.LONG, Type.LIST])
@pytest.mark.parametrize(
    "text",
    ["", " ", "5", " 5 ", "+5", "-5", "05", "5.0", "0x5", "1_0", "32767", "32768", "-32769", "2147483647", "2147483648",
     "9223372036854775807", "9223372036854775808", "true", "TRUE", "yes", "a,b", " a , b ,", ",", "\x1fa\x1f"],
)  # fmt: skip
def test_the_values_of_settings(oracle: StorageOracle, kind: Type, text: str) -> None:
    ours = outcome(lambda: convert_to_string(parse_type("key", text, kind), kind))
    assert ours == outcome(lambda: oracle.parse_type(text, kind.name))


@pytest.mark.parametrize(
    "text", ["0.5", ".5", "5.", "1e3", "1.5f", "NaN", "-Infinity", "inf", "nan", "", "1_0", "0.5x"]
)
def test_the_values_of_fractions(oracle: StorageOracle, text: str) -> None:
    ours, theirs = (
        outcome(lambda: parse_type("key", text, Type.DOUBLE)),
        outcome(lambda: oracle.parse_type(text, "DOUBLE")),
    )
    assert (ours == "refused") == (theirs == "refused")
    if ours != "refused":
        assert str(ours) == str(float(theirs))


NEW_IN_4_4 = {
    "errors.deadletterqueue.group.enable",
    "max.decompressed.message.bytes",
    "remote.copy.lag.bytes",
    "remote.copy.lag.ms",
}
"""Settings of the release whose client jar there is, but no storage jar."""

ELSEWHERE = {
    "compression.gzip.level", "compression.lz4.level", "compression.type", "compression.zstd.level",
    "log.local.retention.bytes", "log.local.retention.ms", "log.remote.copy.lag.bytes", "log.remote.copy.lag.ms",
    "max.decompressed.message.bytes", "message.max.bytes", "unclean.leader.election.enable",
}  # fmt: skip
"""Broker settings that Kafka defines in other modules than the ones the oracle looks at."""


def described(kind: str, default: str | None, valid: str, importance: str, internal: bool) -> list[Any]:
    return [kind, float(default) if kind == "DOUBLE" and default else default, valid, importance, internal]


def ours_described(name: str, keys: Any) -> list[Any]:
    key = keys[name]
    default = convert_to_string(key.default, key.type)
    return described(key.type.name, default, key.valid_values, key.importance.name, key.internal)


def test_the_settings_of_topics_are_kafkas(oracle: StorageOracle) -> None:
    theirs = oracle.config_keys()["topic"]
    assert set(LOG_CONFIG_DEF.keys) - set(theirs) == NEW_IN_4_4
    for name, description in theirs.items():
        assert ours_described(name, LOG_CONFIG_DEF.keys) == described(*description), name


def test_the_settings_of_brokers_are_kafkas(oracle: StorageOracle) -> None:
    theirs = oracle.config_keys()["server"]
    assert set(SERVER_LOG_CONFIG_DEF.keys) - set(theirs) == ELSEWHERE
    for name, description in theirs.items():
        if name == "log.dir":
            continue  # Kafka's default is a directory for temporary files
        assert ours_described(name, SERVER_LOG_CONFIG_DEF.keys) == described(*description), name


def test_the_synonyms_are_kafkas(oracle: StorageOracle) -> None:
    theirs = oracle.config_keys()["synonyms"]
    assert set(TOPIC_CONFIG_SYNONYMS) - set(theirs) == NEW_IN_4_4 - {"errors.deadletterqueue.group.enable"}
    for topic_key, pairs in theirs.items():
        ours = [[synonym.name, synonym.convert("7")] for synonym in TOPIC_CONFIG_SYNONYMS[topic_key]]
        assert ours == pairs, topic_key


VALUES = st.sampled_from(["", "-3", "-2", "-1", "0", "1", "2", "9", "10", "23", "1048576", "0.5", "1.5", "true", "no",
                          "compact", "delete,compact", "delete,delete", "*", "0:1", "0:1,2", "zstd", "producer", "none",
                          "CreateTime", "99999999999"])  # fmt: skip


@settings(SLOW, max_examples=300)
@given(
    st.dictionaries(
        st.sampled_from([*sorted(set(LOG_CONFIG_DEF.keys) - NEW_IN_4_4 - {"remote.storage.enable"}), "segment.size"]),
        VALUES,
        min_size=1,
        max_size=2,
    )
)
def test_what_a_topic_may_be_configured_to(oracle: StorageOracle, properties: dict[str, str]) -> None:
    def ours() -> None:
        try:
            validate_topic_config(properties)
        except (ConfigError, InvalidConfigurationError) as error:
            raise ApiError(str(error)) from None

    assert outcome(ours) == outcome(lambda: oracle.validate_topic_config(properties))


def test_importance_has_kafkas_names() -> None:
    assert [importance.name for importance in Importance] == ["HIGH", "MEDIUM", "LOW"]


# Leader epochs, step by step


EPOCHS, OFFSETS = st.integers(-1, 8), st.integers(-1, 30)
EPOCH_STEP = st.one_of(
    st.tuples(st.just("assign"), EPOCHS, OFFSETS),
    st.tuples(
        st.just("assign_all"), st.lists(st.tuples(st.integers(0, 8), st.integers(0, 30)), min_size=1, max_size=3)
    ),
    st.tuples(st.just("truncate_from_start"), st.integers(0, 30)),
    st.tuples(st.just("truncate_from_end"), OFFSETS),
    st.tuples(st.just("clear_and_flush")),
    st.tuples(st.just("ask"), EPOCHS, OFFSETS, OFFSETS),
)


def run_epoch_script(directory: Path, steps: list[Any]) -> list[Any]:
    checkpoint = LeaderEpochCheckpointFile.in_directory(directory)
    cache = LeaderEpochFileCache(PARTITION, checkpoint, lambda _name, task: task())

    def ask(epoch: int, offset: int, end: int) -> list[Any]:
        return [
            cache.end_offset_for(epoch, 1000),
            cache.epoch_for_offset(offset),
            cache.previous_epoch(),
            cache.previous_epoch(epoch),
            cache.next_epoch(epoch),
            cache.entry_for(epoch),
            cache.previous_entry(epoch),
            cache.earliest_entry,
            cache.latest_entry,
            cache.entries_in_range(offset, end),
        ]

    def assign_all(entries: list[tuple[int, int]]) -> None:
        cache.assign_all(EpochEntry(*item) for item in entries)

    actions: dict[str, Callable[..., Any]] = {
        "ask": ask,
        "assign": cache.assign,
        "assign_all": assign_all,
        "truncate_from_start": cache.truncate_from_start,
        "truncate_from_end": cache.truncate_from_end,
        "clear_and_flush": cache.clear_and_flush,
    }
    outcomes = []
    for name, *arguments in steps:
        try:
            result = actions[name](*arguments)
        except ValueError:
            result = "refused: IllegalArgumentException"
        outcomes.append(plain([result, [cache.entries, checkpoint.read()]]))
    return outcomes


def plain(value: Any) -> Any:
    """As it comes out of JSON: tuples are lists."""
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


@SLOW
@given(st.lists(EPOCH_STEP, max_size=12))
def test_leader_epochs(
    oracle: StorageOracle, tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[Any, ...]]
) -> None:
    theirs = oracle.epoch_script(tmp_path_factory.mktemp("theirs"), plain(steps))
    assert run_epoch_script(tmp_path_factory.mktemp("ours"), steps) == theirs


# Producers, step by step


class ProducerScript:
    """The steps that StorageOracle.java has for Kafka's ProducerStateManager, for ours."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = MockClock(0)
        self.manager = self.open()

    def open(self) -> ProducerStateManager:
        config = new_config(verification=True)
        return ProducerStateManager(PARTITION, self.directory, 500, config, self.clock)

    def run(self, steps: list[Any]) -> list[Any]:
        outcomes = []
        for name, *arguments in steps:
            try:
                result = getattr(self, name)(*arguments)
            except ValueError:
                result = "refused: IllegalArgumentException"
            except ApiError as error:
                result = f"refused: {type(error).__name__.removesuffix('Error')}Exception"
            outcomes.append([result, self.state()])
        return outcomes

    def data(
        self,
        producer_id: int,
        epoch: int,
        first: int,
        last: int,
        at: int,
        offset: int,
        end: int,
        txn: bool,
        origin: str,
    ) -> None:
        info = self.manager.prepare_update(producer_id, AppendOrigin[origin])
        info.append_data_batch(epoch, first, last, at, offset, end, txn)
        self.manager.update(info)
        self.manager.update_map_end_offset(end + 1)

    def marker(
        self,
        producer_id: int,
        epoch: int,
        coordinator: int,
        offset: int,
        at: int,
        abort: bool,
        origin: str,
        version: int,
    ) -> list[Any] | None:
        info = self.manager.prepare_update(producer_id, AppendOrigin[origin])
        marker = EndTransactionMarker(ControlRecordType.ABORT if abort else ControlRecordType.COMMIT, coordinator)
        completed = info.append_end_txn_marker(marker, epoch, offset, at, version)
        self.manager.update(info)
        self.manager.update_map_end_offset(offset + 1)
        if completed is None:
            return None
        last_stable_offset = self.manager.last_stable_offset(completed)
        self.manager.complete_txn(completed)
        return [*completed, last_stable_offset]

    def verify(self, producer_id: int, sequence: int, epoch: int, bump: bool) -> None:
        self.manager.maybe_create_verification_state_entry(producer_id, sequence, epoch, supports_epoch_bump=bump)

    def clear_verification(self, producer_id: int) -> None:
        self.manager.clear_verification_state_entry(producer_id)

    def high_watermark(self, offset: int) -> None:
        self.manager.on_high_watermark_updated(offset)

    def log_start(self, offset: int) -> None:
        self.manager.on_log_start_offset_incremented(offset)

    def time(self, now: int) -> None:
        self.clock.set_milliseconds(now)
        self.manager.remove_expired_producers(now)

    def snapshot(self) -> str | None:
        path = self.manager.take_snapshot(sync=False)
        return None if path is None else path.name

    def truncate(self, start: int, end: int) -> None:
        self.manager.truncate_and_reload(start, end, self.clock.milliseconds())

    def truncate_fully(self, offset: int) -> None:
        self.manager.truncate_fully_and_start_at(offset)

    def reopen(self) -> None:
        self.manager = self.open()

    def delete_before(self, offset: int) -> None:
        self.manager.delete_snapshots_before(offset)

    def remove_stray(self, bases: list[int]) -> None:
        self.manager.remove_stray_snapshots(bases)

    def mark_for_deletion(self, offset: int) -> str | None:
        file = self.manager.remove_and_mark_snapshot_for_deletion(offset)
        return None if file is None else file.path.name

    def state(self) -> dict[str, Any]:
        manager = self.manager
        unstable = manager.first_unstable_offset
        waiting = manager.verification_state_entry(1)
        return {
            "producers": [as_list(state) for _, state in sorted(manager.active_producers.items())],
            "first_unstable": None if unstable is None else unstable.message_offset,
            "first_undecided": manager.first_undecided_offset,
            "map_end": manager.map_end_offset,
            "latest_snapshot": manager.latest_snapshot_offset,
            "oldest_snapshot": manager.oldest_snapshot_offset,
            "empty": manager.is_empty,
            "late": manager.has_late_transaction(self.clock.milliseconds() + 400_000),
            "verification": waiting
            and [waiting.timestamp, waiting.lowest_sequence, waiting.epoch, waiting.supports_epoch_bump],
            "files": sorted(path.name for path in self.directory.iterdir()),
        }


ORIGINS = st.sampled_from(["CLIENT", "CLIENT", "COORDINATOR", "REPLICATION"])
SEQUENCES = st.integers(0, 6) | st.sampled_from([2**31 - 2, 2**31 - 1])


@st.composite
def producer_scripts(draw: st.DrawFn) -> list[list[Any]]:
    """Steps that are likely to be accepted, so that there is something to go wrong with; offsets only grow."""
    offset, now = 0, 0
    next_sequences: dict[tuple[int, int], int] = {}
    epochs = {1: 0, 2: 0}
    script: list[list[Any]] = []
    others: list[tuple[str, Callable[[], list[Any]]]] = [
        ("verify", lambda: [draw(st.integers(1, 2)), draw(SEQUENCES), draw(st.integers(0, 3)), draw(st.booleans())]),
        ("clear_verification", lambda: [draw(st.integers(1, 2))]),
        ("high_watermark", lambda: [draw(st.integers(0, offset))]),
        ("log_start", lambda: [draw(st.integers(0, offset))]),
        ("snapshot", list),
        ("snapshot", list),
        ("truncate", lambda: [draw(st.integers(0, offset)), draw(st.integers(0, offset + 1))]),
        ("truncate_fully", lambda: [draw(st.integers(0, offset + 5))]),
        ("reopen", list),
        ("delete_before", lambda: [draw(st.integers(0, offset + 1))]),
        ("remove_stray", lambda: [draw(st.lists(st.integers(0, offset + 1), max_size=4))]),
        ("mark_for_deletion", lambda: [draw(st.integers(0, offset + 1))]),
    ]  # fmt: skip
    for _ in range(draw(st.integers(1, 25))):
        kind = draw(st.integers(0, 9))
        producer_id = draw(st.integers(1, 2))
        now += draw(st.sampled_from([0, 1, 400, 1000]))
        epoch = min(max(0, epochs[producer_id] + draw(st.sampled_from([0, 0, 0, 0, 1, -1]))), 32767)
        if kind < 5:
            count = draw(st.integers(1, 3))
            expected = next_sequences.get((producer_id, epoch), 0)
            first = expected if draw(st.integers(0, 4)) else draw(SEQUENCES)
            last = (first + count - 1) & (2**31 - 1)
            step = [
                producer_id,
                epoch,
                first,
                last,
                now,
                offset,
                offset + count - 1,
                draw(st.booleans()),
                draw(ORIGINS),
            ]
            script.append(["data", *step])
            next_sequences[producer_id, epoch] = (last + 1) & (2**31 - 1)
            epochs[producer_id] = max(epochs[producer_id], epoch)
            offset += count
        elif kind < 7:
            version = draw(st.sampled_from([-1, 0, 1, 2, 2]))
            if draw(st.integers(0, 9)) == 0:
                epoch = 32767
            coordinator = draw(st.sampled_from([0, 0, 1]))
            origin = draw(st.sampled_from(["COORDINATOR", "COORDINATOR", "REPLICATION"]))
            script.append(
                ["marker", producer_id, epoch, coordinator, offset, now, draw(st.booleans()), origin, version]
            )
            epochs[producer_id] = max(epochs[producer_id], epoch)
            offset += 1
        elif kind == 7:
            script.append(["time", now])
        else:
            name, arguments = draw(st.sampled_from(others))
            script.append([name, *arguments()])
    return script


@settings(SLOW, max_examples=300)
@given(producer_scripts())
def test_producers(oracle: StorageOracle, tmp_path_factory: pytest.TempPathFactory, steps: list[list[Any]]) -> None:
    theirs = oracle.producer_script(tmp_path_factory.mktemp("theirs"), steps)
    ours = ProducerScript(tmp_path_factory.mktemp("ours")).run(steps)
    for step, (our_outcome, their_outcome) in zip(steps, zip(ours, theirs, strict=True), strict=True):
        assert our_outcome == their_outcome, step
