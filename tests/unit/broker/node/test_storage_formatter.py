"""Formatting: directories get an identity, those that have one keep it, and nothing is left half done."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from barnabas.broker.config.kafka_config import KafkaConfig
from barnabas.broker.node.kafka_raft_server import KafkaRaftServer, StartupError, initialize_log_dirs
from barnabas.broker.node.storage_formatter import FormatError, format_if_empty, format_storage
from barnabas.common.errors import BarnabasError, CorruptRecordError
from barnabas.embedded import EmbeddedBroker
from barnabas.log.dirs.meta_properties import InvalidMetaPropertiesError, MetaProperties
from barnabas.protocol.internal.metadata import FeatureLevelRecord
from barnabas.raft.bootstrap_file import BOOTSTRAP_FILE, read_bootstrap_file, write_bootstrap_file
from barnabas.raft.kraft_log import MetadataLogError

CLUSTER = "5L6g3nShT-eMCtK--X86sw"


def config_for(*directories: Path, node_id: int = 1, metadata: Path | None = None) -> KafkaConfig:
    overrides: dict[str, object] = {"log.dirs": ",".join(map(str, directories)), "node.id": node_id}
    if metadata is not None:
        overrides["metadata.log.dir"] = metadata
    return KafkaConfig.for_zero_configuration(directories[0], overrides=overrides)


def read(directory: Path) -> MetaProperties:
    found = MetaProperties.read(directory)
    assert found is not None
    return found


def test_every_directory_gets_the_same_cluster_and_an_id_of_its_own(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    report = format_storage(config_for(one, two, node_id=3), cluster_id=CLUSTER)
    assert (report.cluster_id, report.node_id, report.formatted, report.left_alone) == (CLUSTER, 3, (one, two), ())
    assert {read(one).cluster_id, read(two).cluster_id} == {CLUSTER}
    assert {read(one).node_id, read(two).node_id} == {3}
    assert read(one).directory_id != read(two).directory_id
    assert list(report.lines())[-1] == f"Cluster id {CLUSTER}, node id 3"


def test_the_metadata_log_gets_the_features_to_begin_with(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    format_storage(config_for(one, two, metadata=two), release_version="4.0")
    assert not (one / BOOTSTRAP_FILE).exists()
    messages = [record.message for record in read_bootstrap_file(two / BOOTSTRAP_FILE)]
    levels = {message.name: message.feature_level for message in messages if isinstance(message, FeatureLevelRecord)}
    assert levels["metadata.version"] == 25


def test_without_voters_in_the_configuration_the_node_is_the_voter(tmp_path: Path) -> None:
    """As Kafka's own ``server.properties`` has it."""
    properties = {
        "process.roles": "broker,controller",
        "node.id": "3",
        "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
        "log.dirs": str(tmp_path / "data"),
    }
    config = KafkaConfig.from_properties(properties)
    format_storage(config)
    for epoch in (1, 2):
        server = KafkaRaftServer(config)
        server.startup()
        try:
            raft = server.shared.raft
            assert raft is not None
            info = raft.client.describe_quorum()
            assert (info.leader_id, info.leader_epoch, info.kraft_version) == (3, epoch, 1)
            assert [voter.replica_directory_id for voter in info.current_voters] == [
                read(tmp_path / "data").directory_id
            ]
            assert info.nodes[0].listeners[0].port > 0, "where it is now, not what the configuration says"
        finally:
            server.shutdown()


def test_voters_in_the_configuration_are_not_in_the_log(tmp_path: Path) -> None:
    format_storage(config_for(tmp_path / "data"))
    assert not list((tmp_path / "data").glob("__cluster_metadata-0/*"))


def test_what_is_formatted_is_an_error_or_left_alone(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    format_storage(config_for(one), cluster_id=CLUSTER)
    before = read(one)
    with pytest.raises(FormatError, match="is formatted already; use --ignore-formatted"):
        format_storage(config_for(one, two, metadata=one))
    assert not two.exists()
    report = format_storage(config_for(one, two, metadata=one), ignore_formatted=True)
    assert (report.formatted, report.left_alone, report.cluster_id) == ((two,), (one,), CLUSTER)
    assert read(one) == before
    assert "Left" in "".join(report.lines())
    again = format_storage(config_for(one, two, metadata=one), ignore_formatted=True)
    assert "All of the log directories are already formatted" in list(again.lines())


def test_another_cluster_or_node_is_refused(tmp_path: Path) -> None:
    format_storage(config_for(tmp_path), cluster_id=CLUSTER)
    with pytest.raises(BarnabasError, match="cluster"):
        format_storage(config_for(tmp_path), cluster_id="AAAAAAAAAAAAAAAAAAAAAA", ignore_formatted=True)
    with pytest.raises(BarnabasError, match="node"):
        format_storage(config_for(tmp_path, node_id=2), ignore_formatted=True)


def test_an_unknown_release_changes_nothing(tmp_path: Path) -> None:
    with pytest.raises(FormatError):
        format_storage(config_for(tmp_path / "data"), release_version="0.9")
    assert not (tmp_path / "data").exists()


def test_only_what_is_empty_is_formatted_without_being_asked(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    assert format_if_empty(config_for(one)) is not None
    before = read(one)
    assert format_if_empty(config_for(one)) is None
    assert format_if_empty(config_for(one, two, metadata=one)) is None
    assert not two.exists(), "a node that is there is not given new directories by this"
    assert read(one) == before


def lose_identity(directory: Path) -> MetaProperties:
    before = read(directory)
    (directory / "meta.properties").unlink()
    return before


def test_data_without_an_identity_get_none_unless_somebody_says_which(tmp_path: Path) -> None:
    config = config_for(tmp_path)
    with EmbeddedBroker(tmp_path):
        pass
    lose_identity(tmp_path)
    before = sorted(path.name for path in tmp_path.iterdir())
    for attempt in (format_if_empty, format_storage, initialize_log_dirs):
        with pytest.raises(InvalidMetaPropertiesError) as caught:
            attempt(config)
        assert f"{tmp_path} has data of a broker (.kafka_cleanshutdown, __cluster_metadata-0, " in str(caught.value)
        assert "or run `barnabas format --ignore-formatted --cluster-id ID`" in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    report = format_storage(config, cluster_id=CLUSTER)
    assert (report.cluster_id, report.formatted) == (CLUSTER, (tmp_path,))
    with EmbeddedBroker(tmp_path):
        pass


def test_one_of_several_directories_that_lost_its_identity(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    config = config_for(one, two, metadata=one)
    format_storage(config, cluster_id=CLUSTER)
    lose_identity(two)
    (two / "orders-0").mkdir()
    for attempt in (initialize_log_dirs, lambda config: format_storage(config, ignore_formatted=True)):
        with pytest.raises(InvalidMetaPropertiesError, match="two has data of a broker"):
            attempt(config)
    assert not (two / "meta.properties").exists()
    format_storage(config, cluster_id=CLUSTER, ignore_formatted=True)
    assert initialize_log_dirs(config).properties[two].cluster_id == CLUSTER


def test_a_voter_that_is_formatted_again_keeps_its_id(tmp_path: Path) -> None:
    """The log has the id of its directory: with another one it would not be the voter, and nobody could be elected."""
    properties = {
        "process.roles": "broker,controller",
        "node.id": "3",
        "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
        "log.dirs": str(tmp_path),
    }
    config = KafkaConfig.from_properties(properties)
    format_storage(config, cluster_id=CLUSTER)
    server = KafkaRaftServer(config)
    server.startup()
    server.shutdown()
    before = lose_identity(tmp_path)
    format_storage(config, cluster_id=CLUSTER)
    assert read(tmp_path) == before
    server = KafkaRaftServer(config)
    server.startup()
    server.shutdown()


def test_a_format_that_was_interrupted_is_done_again(tmp_path: Path) -> None:
    """Everything but ``meta.properties`` is there, which is written last."""
    config = config_for(tmp_path)
    format_storage(config, cluster_id=CLUSTER)
    lose_identity(tmp_path)
    assert format_if_empty(config) is not None


# ---------------------------------------------------------------------------------------------------- at a start


def test_a_lost_metadata_log_stops_the_start(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path):
        pass
    shutil.rmtree(tmp_path / "__cluster_metadata-0")
    (tmp_path / "orders-0").mkdir()
    with pytest.raises(MetadataLogError, match=r"__cluster_metadata-0 is empty, but .* partitions \(orders-0\)"):
        EmbeddedBroker(tmp_path).start()
    (tmp_path / "orders-0").rename(tmp_path / "orders-0.0123456789abcdef0123456789abcdef-stray")
    with EmbeddedBroker(tmp_path):
        pass


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "meta.properties: the file is empty"),
        ("\x00" * 20, "meta.properties"),
        ("version=0\nbroker.id=1\n", "meta.properties does not say cluster.id: restore the file"),
        (f"version=0\ncluster.id={CLUSTER}\n", "meta.properties does not say broker.id: restore the file"),
    ],
)
def test_a_damaged_identity_names_its_file(tmp_path: Path, text: str, fault: str) -> None:
    (tmp_path / "meta.properties").write_text(text)
    with pytest.raises(BarnabasError, match=re.escape(fault)) as caught:
        initialize_log_dirs(config_for(tmp_path))
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("contents", [b"", b"garbage", b"garbage" * 100, bytes(200)])
def test_a_damaged_bootstrap_file_is_named(tmp_path: Path, contents: bytes) -> None:
    format_storage(config_for(tmp_path))
    (tmp_path / BOOTSTRAP_FILE).write_bytes(contents)
    with pytest.raises(CorruptRecordError) as caught:
        KafkaRaftServer(config_for(tmp_path)).startup()
    assert str(caught.value).startswith(f"{tmp_path / BOOTSTRAP_FILE} is damaged")
    assert "delete it if the cluster has been started before" in str(caught.value)


def test_a_bootstrap_file_without_features_is_named(tmp_path: Path) -> None:
    format_storage(config_for(tmp_path))
    write_bootstrap_file(tmp_path / BOOTSTRAP_FILE, [])
    with pytest.raises(CorruptRecordError, match=f"from {tmp_path / BOOTSTRAP_FILE} must set metadata.version"):
        KafkaRaftServer(config_for(tmp_path)).startup()


def test_a_node_that_is_not_formatted_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="is not formatted; run `barnabas format`"):
        initialize_log_dirs(config_for(tmp_path))


def test_a_directory_that_was_added_gets_the_identity_of_the_others(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    format_storage(config_for(one), cluster_id=CLUSTER)
    ensemble = initialize_log_dirs(config_for(one, two, metadata=one))
    assert ensemble.cluster_id == CLUSTER
    assert read(two).cluster_id == CLUSTER
    assert read(two).directory_id not in {None, read(one).directory_id}


def test_the_directory_of_the_metadata_log_is_not_made_anew(tmp_path: Path) -> None:
    """It would be a controller that has forgotten everything; more likely its disk is not mounted."""
    one, two = tmp_path / "one", tmp_path / "two"
    format_storage(config_for(one), cluster_id=CLUSTER)
    with pytest.raises(BarnabasError, match="metadata log"):
        initialize_log_dirs(config_for(one, two, metadata=two))
    assert not two.exists()


def test_a_directory_without_an_id_gets_one(tmp_path: Path) -> None:
    """Those of brokers before Kafka 3.7."""
    MetaProperties(cluster_id=CLUSTER, node_id=1).write(tmp_path)
    initialize_log_dirs(config_for(tmp_path))
    assert read(tmp_path).directory_id is not None


def test_directories_that_cannot_be_read_say_why(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(StartupError, match="Not a directory"):
        initialize_log_dirs(config_for(file / "data"))


def test_the_directory_of_another_node_is_refused(tmp_path: Path) -> None:
    format_storage(config_for(tmp_path, node_id=5))
    with pytest.raises(BarnabasError, match="node"):
        initialize_log_dirs(config_for(tmp_path))
