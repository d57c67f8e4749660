from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.common.errors import InconsistentTopicIdError, KafkaStorageError
from barnabas.common.identifiers import random_uuid, uuid_from_string
from barnabas.log.dirs.partition_metadata_file import (
    CorruptPartitionMetadataError,
    PartitionMetadata,
    PartitionMetadataFile,
)

TOPIC_ID = uuid_from_string("0iFCbVxLRfCb0XVfYPQaAQ")


def test_an_id_is_written_by_the_flush(tmp_path: Path) -> None:
    file = PartitionMetadataFile.in_directory(tmp_path)
    file.maybe_flush()
    file.record(TOPIC_ID)
    assert not file.exists()
    file.maybe_flush()
    assert file.exists()
    assert file.path == tmp_path / "partition.metadata"
    assert file.path.read_bytes() == b"version: 0\ntopic_id: 0iFCbVxLRfCb0XVfYPQaAQ"
    assert file.read() == (0, TOPIC_ID)


def test_it_is_written_once(tmp_path: Path) -> None:
    file = PartitionMetadataFile.in_directory(tmp_path)
    file.record(TOPIC_ID)
    file.record(TOPIC_ID)
    file.maybe_flush()
    file.delete()
    file.maybe_flush()
    assert not file.exists()
    assert repr(file) == f"PartitionMetadataFile('{tmp_path}/partition.metadata')"


def test_two_ids_are_a_contradiction(tmp_path: Path) -> None:
    file = PartitionMetadataFile.in_directory(tmp_path)
    file.record(TOPIC_ID)
    with pytest.raises(InconsistentTopicIdError, match="0iFCbVxLRfCb0XVfYPQaAQ"):
        file.record(random_uuid())


def test_a_failed_flush_is_tried_again(tmp_path: Path) -> None:
    file = PartitionMetadataFile.in_directory(tmp_path / "topic-0")
    file.record(TOPIC_ID)
    with pytest.raises(KafkaStorageError, match="cannot write"):
        file.maybe_flush()
    (tmp_path / "topic-0").mkdir()
    file.maybe_flush()
    assert file.read().topic_id == TOPIC_ID


@pytest.mark.parametrize(
    "data",
    [
        b"version:  0\r\ntopic_id: 0iFCbVxLRfCb0XVfYPQaAQ\n",
        b"version: 3\ntopic_id: 0iFCbVxLRfCb0XVfYPQaAQ\nmore: 5",
    ],
)
def test_what_else_can_be_read(data: bytes) -> None:
    assert PartitionMetadata.decode(data).topic_id == TOPIC_ID


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", "line 1 .* should be 'version: ...'"),
        (b"version: 0", "line 2 .* should be 'topic_id: ...'"),
        (b"version:0\ntopic_id: 0iFCbVxLRfCb0XVfYPQaAQ", "line 1"),
        (b"version: x\ntopic_id: 0iFCbVxLRfCb0XVfYPQaAQ", "'x' is not a whole number"),
        (b"version: -1\ntopic_id: 0iFCbVxLRfCb0XVfYPQaAQ", "version -1"),
        (b"version: 0\ntopic_id: 0iFC", "decodes to 3 bytes"),
        (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", "zero"),
        (b"version: 0\ntopic_id: a: b", "line 2"),
        (b"\xff\xff", "can't decode"),
    ],
)
def test_a_broken_file(tmp_path: Path, data: bytes, fault: str) -> None:
    file = PartitionMetadataFile.in_directory(tmp_path)
    file.path.write_bytes(data)
    with pytest.raises(CorruptPartitionMetadataError, match=fault) as caught:
        file.read()
    assert str(file.path) in str(caught.value)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(KafkaStorageError, match="cannot read"):
        PartitionMetadataFile.in_directory(tmp_path).read()
    with pytest.raises(KafkaStorageError, match="cannot delete"):
        PartitionMetadataFile.in_directory(tmp_path).delete()


@given(st.binary(max_size=60))
def test_any_bytes_give_an_id_or_one_error(data: bytes) -> None:
    with suppress(ValueError):
        PartitionMetadata.decode(data)
