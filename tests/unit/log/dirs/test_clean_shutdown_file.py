from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.common.errors import KafkaStorageError
from barnabas.log.dirs.clean_shutdown_file import CleanShutdownFile


def test_the_marker(tmp_path: Path) -> None:
    file = CleanShutdownFile(tmp_path)
    assert not file.exists()
    assert file.read() is None
    file.write(8141)
    assert (tmp_path / ".kafka_cleanshutdown").read_bytes() == b'{"version":0,"brokerEpoch":8141}'
    assert file.exists()
    assert file.read() == 8141
    file.delete()
    assert not file.exists()
    file.delete()
    assert repr(file) == f"CleanShutdownFile('{tmp_path}/.kafka_cleanshutdown')"


@pytest.mark.parametrize(
    ("data", "epoch"),
    [
        (b"", None),  # what brokers before Kafka 3.8 leave
        (b"{}", None),
        (b"5", None),
        (b"[]", None),
        (b'{"version":0,"brokerEpoch":null}', None),
        (b'{"version":0,"brokerEpoch":true}', None),
        (b'{"version":0,"brokerEpoch":1.5}', None),
        (b'{"version":0,"brokerEpoch":9223372036854775808}', None),
        (b'{"version":0,"brokerEpoch":5', None),
        (b"\xff\xfe", None),
        (b"[" * 100_000, None),
        (b'{"brokerEpoch":-1,"more":"fields"}', -1),
        (json.dumps({"version": 1, "brokerEpoch": 5}).encode(), 5),
    ],
)
def test_a_marker_counts_whatever_it_says(tmp_path: Path, data: bytes, epoch: int | None) -> None:
    file = CleanShutdownFile(tmp_path)
    file.path.write_bytes(data)
    assert file.exists()
    assert file.read() == epoch


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_any_bytes_give_an_epoch_or_none(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    file = CleanShutdownFile(tmp_path_factory.mktemp("dir"))
    file.path.write_bytes(data)
    assert file.read() is None or isinstance(file.read(), int)


def test_no_directory(tmp_path: Path) -> None:
    file = CleanShutdownFile(tmp_path / "gone")
    with pytest.raises(KafkaStorageError, match="cannot write"):
        file.write(1)
    with pytest.raises(KafkaStorageError, match="cannot delete"):
        file.delete()
