from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.common.errors import Errors, KafkaStorageError
from barnabas.common.identifiers import Uuid, random_uuid, uuid_from_string, uuid_to_string
from barnabas.log.dirs.meta_properties import (
    InvalidMetaPropertiesError,
    MetaProperties,
    data_in,
    is_reserved_directory_id,
    random_directory_id,
    refuse_data_without_identity,
)
from barnabas.log.dirs.meta_properties_ensemble import MetaPropertiesEnsemble

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
DIRECTORY_ID = uuid_from_string("vZ1Jk0PQSzKdDlRyjXm2Gg")


def write(directory: Path, text: str) -> Path:
    directory.mkdir(exist_ok=True)
    (directory / "meta.properties").write_text(text)
    return directory


def test_version_1(tmp_path: Path) -> None:
    meta = MetaProperties(cluster_id=CLUSTER, node_id=3, directory_id=DIRECTORY_ID)
    meta.write(tmp_path)
    assert (tmp_path / "meta.properties").read_text().splitlines() == [
        "version=1",
        f"cluster.id={CLUSTER}",
        "node.id=3",
        "directory.id=vZ1Jk0PQSzKdDlRyjXm2Gg",
    ]
    assert MetaProperties.read(tmp_path) == meta
    assert [path.name for path in tmp_path.iterdir()] == ["meta.properties"]


def test_as_kafka_writes_it(tmp_path: Path) -> None:
    write(
        tmp_path,
        f"#\n#Sun Nov 15 12:29:59 UTC 2026\nnode.id=3\ndirectory.id=vZ1Jk0PQSzKdDlRyjXm2Gg\nversion=1\n"
        f"cluster.id={CLUSTER}\n",
    )
    assert MetaProperties.read(tmp_path) == MetaProperties(1, CLUSTER, 3, DIRECTORY_ID)


def test_version_0(tmp_path: Path) -> None:
    assert MetaProperties.read(write(tmp_path, "version=0")) == MetaProperties(0)
    old = MetaProperties(0, CLUSTER, 7)
    assert old.to_properties() == {"version": "0", "cluster.id": CLUSTER, "broker.id": "7"}
    assert MetaProperties.from_properties(old.to_properties()) == old
    assert MetaProperties(0).to_properties() == {"version": "0"}


def test_a_directory_that_was_not_formatted(tmp_path: Path) -> None:
    assert MetaProperties.read(tmp_path) is None
    assert MetaProperties.read(tmp_path / "not" / "there") is None


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "the file is empty. Restore it from a backup, or delete it and run `barnabas format"),
        ("# only a comment", "the file is empty"),
        ("version=2", "version 2 is not known"),
        ("version=-1", "version -1 is not known"),
        ("version=one", "version is 'one', not a number"),
        ("version=1\nnode.id=1", "cluster.id is missing"),
        ("version=1\ncluster.id=x", "node.id is missing"),
        ("version=1\ncluster.id=x\nbroker.id=1", "node.id is missing"),
        ("version=1\ncluster.id=x\nnode.id=1.0", "node.id is '1.0', not a number"),
        ("version=1\ncluster.id=x\nnode.id=99999999999", "not a number"),
        ("version=1\ncluster.id=x\nnode.id=1\ndirectory.id=c2hvcnQ", "directory.id: 'c2hvcnQ' decodes to 5 bytes"),
        ("version=1\ncluster.id=x\nnode.id=1\ndirectory.id=?", "directory.id: .* base64"),
        ("version=\\u1", "four hexadecimal digits"),
    ],
)
def test_a_broken_file(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(InvalidMetaPropertiesError, match=fault) as caught:
        MetaProperties.read(write(tmp_path, text))
    assert str(tmp_path) in str(caught.value)
    assert Errors.for_exception(caught.value) is Errors.KAFKA_STORAGE_ERROR


def test_what_counts_as_data(tmp_path: Path) -> None:
    for name in ("lost+found", "__cluster_metadata-0"):
        (tmp_path / name).mkdir()
    for name in (".lock", "bootstrap.checkpoint", "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"):
        (tmp_path / name).write_bytes(b"")
    assert data_in(tmp_path) == [], "as an interrupted format leaves it"
    refuse_data_without_identity(tmp_path)
    assert data_in(tmp_path / "not" / "there") == []
    (tmp_path / "__cluster_metadata-0" / "00000000000000000000.log").write_bytes(b"")
    for name in ("orders-0", "orders-1.0123-stray", "orders-2.0123-delete"):
        (tmp_path / name).mkdir()
    (tmp_path / "replication-offset-checkpoint").write_text("")
    (tmp_path / ".kafka_cleanshutdown").write_text("")
    assert data_in(tmp_path) == [
        ".kafka_cleanshutdown",
        "__cluster_metadata-0",
        "orders-0",
        "orders-1.0123-stray",
        "orders-2.0123-delete",
        "replication-offset-checkpoint",
    ]
    with pytest.raises(
        InvalidMetaPropertiesError, match=r"__cluster_metadata-0, orders-0 and 3 more\), but no meta\.prop"
    ):
        refuse_data_without_identity(tmp_path)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").mkdir()
    with pytest.raises(KafkaStorageError, match=r"cannot read .*meta\.properties"):
        MetaProperties.read(tmp_path)


def test_reserved_directory_ids() -> None:
    assert is_reserved_directory_id(Uuid(bytes(16)))
    assert is_reserved_directory_id(Uuid(bytes(15) + b"\x63"))
    assert not is_reserved_directory_id(Uuid(bytes(15) + b"\x64"))
    assert not is_reserved_directory_id(DIRECTORY_ID)
    assert is_reserved_directory_id(Uuid(bytes(8) + b"\xff" * 8))
    assert not is_reserved_directory_id(random_directory_id())


# All directories of a node


def formatted(directory: Path, node_id: int = 1, cluster_id: str = CLUSTER, directory_id: Uuid | None = None) -> Path:
    directory.mkdir()
    MetaProperties(1, cluster_id, node_id, directory_id or random_uuid()).write(directory)
    return directory


def test_directories_are_told_apart(tmp_path: Path) -> None:
    good, empty, bad = formatted(tmp_path / "good"), tmp_path / "empty", write(tmp_path / "bad", "version=7")
    ensemble = MetaPropertiesEnsemble.load([good, empty], metadata_log_dir=bad)
    assert list(ensemble.properties) == [good]
    assert ensemble.empty_dirs == {empty}
    assert list(ensemble.failed_dirs) == [bad]
    assert (ensemble.node_id, ensemble.cluster_id) == (1, CLUSTER)
    with pytest.raises(
        InvalidMetaPropertiesError, match=r"metadata log, .*bad, cannot be used: .*version 7 is not known"
    ):
        ensemble.verify()
    MetaPropertiesEnsemble.load([good, empty, bad]).verify(expected_cluster_id=CLUSTER, expected_node_id=1)
    with pytest.raises(ValueError, match="at least one"):
        MetaPropertiesEnsemble.load([])


def test_an_unformatted_node(tmp_path: Path) -> None:
    ensemble = MetaPropertiesEnsemble.load([tmp_path])
    assert (ensemble.node_id, ensemble.cluster_id) == (None, None)
    ensemble.verify()
    with pytest.raises(InvalidMetaPropertiesError, match="must be formatted"):
        ensemble.verify(require_at_least_one_valid=True)
    with pytest.raises(InvalidMetaPropertiesError, match="no directory has been named"):
        ensemble.verify(require_metadata_log_dir=True)


def test_directories_that_do_not_belong_together(tmp_path: Path) -> None:
    one = formatted(tmp_path / "one")
    two = formatted(tmp_path / "two", node_id=2)
    three = formatted(tmp_path / "three", cluster_id="another")
    with pytest.raises(InvalidMetaPropertiesError, match=r"two.meta\.properties belongs to node 2, not to 1"):
        MetaPropertiesEnsemble.load([one, two]).verify()
    with pytest.raises(InvalidMetaPropertiesError, match=r"belongs to cluster another, not to"):
        MetaPropertiesEnsemble.load([one, three]).verify()
    with pytest.raises(InvalidMetaPropertiesError, match=r"belongs to node 1, not to 0"):
        MetaPropertiesEnsemble.load([one]).verify(expected_node_id=0)
    with pytest.raises(InvalidMetaPropertiesError, match=r"belongs to cluster .* not to other"):
        MetaPropertiesEnsemble.load([one]).verify(expected_cluster_id="other")


def test_directory_ids_are_not_shared_and_not_reserved(tmp_path: Path) -> None:
    one = formatted(tmp_path / "one", directory_id=DIRECTORY_ID)
    two = formatted(tmp_path / "two", directory_id=DIRECTORY_ID)
    with pytest.raises(InvalidMetaPropertiesError, match=f"both have the directory id {uuid_to_string(DIRECTORY_ID)}"):
        MetaPropertiesEnsemble.load([one, two]).verify()
    reserved = formatted(tmp_path / "reserved", directory_id=Uuid(bytes(15) + b"\x02"))
    with pytest.raises(InvalidMetaPropertiesError, match="reserved directory id"):
        MetaPropertiesEnsemble.load([reserved]).verify()
    old = write(tmp_path / "old", f"cluster.id={CLUSTER}\nbroker.id=1\n")
    MetaPropertiesEnsemble.load([one, old]).verify()
