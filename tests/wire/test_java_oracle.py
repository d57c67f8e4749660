"""The Java oracle itself: it finds every message, tells the truth about bytes, and reports what Java throws."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from oracles.definitions import load_definitions, parse_definition
from oracles.java import JavaOracle, OracleError

pytestmark = pytest.mark.java

RECORDS = base64.b64encode(b"not a batch, but bytes").decode()
# One message from each jar, and one of each kind that Java names differently.
SAMPLES: list[tuple[str, int, dict[str, Any]]] = [
    ("RequestHeader", 2, {"requestApiKey": 3, "requestApiVersion": 12, "correlationId": 7, "clientId": None}),
    (
        "ProduceRequest",
        9,
        {
            "transactionalId": None,
            "acks": -1,
            "timeoutMs": 1500,
            "topicData": [{"name": "t", "partitionData": [{"index": 0, "records": RECORDS}]}],
        },
    ),
    (
        "FetchSnapshotResponse",
        0,
        {
            "throttleTimeMs": 0,
            "errorCode": 0,
            "topics": [
                {
                    "name": "t",
                    "partitions": [
                        {
                            "index": 0,
                            "errorCode": 0,
                            "snapshotId": {"endOffset": 5, "epoch": 1},
                            "size": 100,
                            "position": 0,
                            "unalignedRecords": RECORDS,
                        }
                    ],
                }
            ],
        },
    ),
    ("ConsumerProtocolAssignment", 0, {"assignedPartitions": [{"topic": "t", "partitions": [0, 1]}], "userData": None}),
    ("FeatureLevelRecord", 0, {"name": "metadata.version", "featureLevel": 27}),
    ("QuorumStateData", 1, {"leaderId": 1, "leaderEpoch": 2, "votedId": -1, "votedDirectoryId": "A" * 22}),
    ("GroupMetadataKey", 0, {"group": "g"}),
    ("TransactionLogKey", 0, {"transactionalId": "x"}),
    ("ShareSnapshotKey", 0, {"groupId": "g", "topicId": "AAAAAAAAAAAAAAAAAAAAAQ", "partition": 3}),
    (
        "ProducerSnapshot",
        1,
        {
            "crc": 4294967295,
            "producerEntries": [
                {
                    "producerId": 1,
                    "epoch": 0,
                    "lastSequence": 4,
                    "lastOffset": 9,
                    "offsetDelta": 4,
                    "timestamp": 12,
                    "coordinatorEpoch": 0,
                    "currentTxnFirstOffset": -1,
                }
            ],
        },
    ),
]


def batch_spec(compression: str) -> dict[str, Any]:
    return {
        "compression": compression,
        "level": None,
        "timestampType": "CreateTime",
        "baseOffset": 40,
        "producerId": 9,
        "producerEpoch": 1,
        "baseSequence": 5,
        "isTransactional": True,
        "records": [
            {"offset": 40, "timestamp": 1000, "key": "aw==", "value": "djE=", "headers": [["h", "eA=="], ["n", None]]},
            {"offset": 43, "timestamp": 999, "key": None, "value": None, "headers": []},
        ],
    }


def test_every_definition_has_its_class(java_oracle: JavaOracle) -> None:
    live = {name: d for name, d in load_definitions().items() if d.get("validVersions") != "none"}
    messages = java_oracle.messages()
    assert set(live) == set(messages)
    assert len(live) > 250
    for name, definition in live.items():
        lowest, _, highest = definition["validVersions"].partition("-")
        assert (messages[name]["lowestVersion"], messages[name]["highestVersion"]) == (
            int(lowest),
            int(highest or lowest),
        )
        assert messages[name]["apiKey"] == definition.get("apiKey", -1), name
    assert java_oracle.has_message("ProduceRequest")
    assert not java_oracle.has_message("LeaderAndIsrRequest")


def test_every_version_of_every_message_runs(java_oracle: JavaOracle) -> None:
    """Also those of the server jars, whose classes are older than the client they are loaded beside."""
    calls = [
        (name, version)
        for name, message in java_oracle.messages().items()
        for version in range(message["lowestVersion"], message["highestVersion"] + 1)
    ]
    payloads = java_oracle.encode_default_many(calls)
    assert [result for result in payloads if isinstance(result, OracleError)] == []
    full = [(*call, payload) for call, payload in zip(calls, payloads, strict=True) if isinstance(payload, bytes)]
    values = java_oracle.decode_to_json_many(full)
    assert [result for result in values if isinstance(result, OracleError)] == []
    again = java_oracle.encode_from_json_many(
        (name, version, value) for (name, version), value in zip(calls, values, strict=True)
    )
    assert again == payloads
    assert java_oracle.reencode_many(full) == payloads


@pytest.mark.parametrize(("name", "version", "value"), SAMPLES, ids=[sample[0] for sample in SAMPLES])
def test_values_survive_the_trip(java_oracle: JavaOracle, name: str, version: int, value: dict[str, Any]) -> None:
    payload = java_oracle.encode_from_json(name, version, value)
    assert java_oracle.decode_to_json(name, version, payload) == value
    assert java_oracle.reencode(name, version, payload) == payload


def test_bytes_are_the_ones_of_the_protocol(java_oracle: JavaOracle) -> None:
    """Guards against an oracle that agrees with itself only: this frame was written down by hand."""
    header = bytes.fromhex("0003 000c 00000007 0001 63 00")
    value = {"requestApiKey": 3, "requestApiVersion": 12, "correlationId": 7, "clientId": "c"}
    assert java_oracle.encode_from_json("RequestHeader", 2, value) == header
    assert java_oracle.decode_to_json("RequestHeader", 2, header) == value


def test_unknown_tagged_fields_are_kept_by_reencode(java_oracle: JavaOracle) -> None:
    header = bytes.fromhex("0003 000c 00000007 ffff 01 63 02 beef")
    assert java_oracle.reencode("RequestHeader", 2, header) == header


def test_left_over_bytes_are_an_error(java_oracle: JavaOracle) -> None:
    header = bytes.fromhex("0003 000c 00000007 ffff 00 00")
    with pytest.raises(OracleError, match="1 of 12 bytes left over after RequestHeader version 2"):
        java_oracle.decode_to_json("RequestHeader", 2, header)
    with pytest.raises(OracleError, match="1 of 12 bytes left over"):
        java_oracle.reencode("RequestHeader", 2, header)


def test_java_exceptions_come_back_and_spare_their_neighbours(java_oracle: JavaOracle) -> None:
    good = java_oracle.encode_default("VoteRequest", 2)
    first, broken, unknown, beyond, last = java_oracle.reencode_many(
        [
            ("VoteRequest", 2, good),
            ("VoteRequest", 2, good[:-1]),
            ("NoSuchRequest", 0, good),
            ("VoteRequest", 3, good),
            ("VoteRequest", 2, good),
        ]
    )
    assert first == last == good
    assert isinstance(broken, OracleError)
    assert broken.java_class == "java.nio.BufferUnderflowException"
    assert str(unknown) == "IllegalArgumentException: no such message: NoSuchRequest"
    assert str(beyond) == "IllegalArgumentException: VoteRequest has versions 0 to 2, not 3"


def test_payloads_may_hold_any_byte(java_oracle: JavaOracle) -> None:
    token = bytes(range(256)) * 3
    payload = len(token).to_bytes(4) + token
    value = java_oracle.decode_to_json("SaslAuthenticateRequest", 0, payload)
    assert base64.b64decode(value["authBytes"]) == token
    assert java_oracle.encode_from_json("SaslAuthenticateRequest", 0, value) == payload


def test_more_calls_than_fit_one_frame(java_oracle: JavaOracle) -> None:
    payloads = [(1 << 20).to_bytes(4) + bytes([n]) * (1 << 20) for n in range(20)]
    assert java_oracle.reencode_many([("SaslAuthenticateRequest", 0, payload) for payload in payloads]) == payloads


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batches(java_oracle: JavaOracle, compression: str) -> None:
    spec = batch_spec(compression)
    data = java_oracle.write_batch(spec)
    batch, twin = java_oracle.read_batches(data * 2)
    assert batch == twin
    for field in spec.keys() - {"level", "records"}:
        assert batch[field] == spec[field], field
    assert (batch["lastOffset"], batch["maxTimestamp"], batch["count"]) == (43, 1000, 2)
    assert (batch["valid"], batch["error"], batch["isControl"]) == (True, None, False)
    assert batch["sizeInBytes"] == len(data)
    assert [{key: record[key] for key in spec["records"][0]} for record in batch["records"]] == spec["records"]
    assert batch["checksum"] == java_oracle.crc32c(data[21:])


def test_append_time_and_levels(java_oracle: JavaOracle) -> None:
    spec = batch_spec("zstd") | {"timestampType": "LogAppendTime", "logAppendTime": 5000, "level": 19}
    (batch,) = java_oracle.read_batches(java_oracle.write_batch(spec))
    assert (batch["timestampType"], batch["maxTimestamp"]) == ("LogAppendTime", 5000)
    assert [record["timestamp"] for record in batch["records"]] == [5000, 5000]
    with pytest.raises(OracleError, match="snappy has no levels"):
        java_oracle.write_batch(batch_spec("snappy") | {"level": 1})


def test_end_of_transaction_marker(java_oracle: JavaOracle) -> None:
    spec = {"controlType": "ABORT", "coordinatorEpoch": 3, "timestamp": 77, "producerId": 4, "producerEpoch": 2}
    (batch,) = java_oracle.read_batches(java_oracle.write_end_txn_marker(spec | {"baseOffset": 11}))
    assert (batch["isControl"], batch["isTransactional"], batch["baseOffset"]) == (True, True, 11)
    assert (batch["producerId"], batch["producerEpoch"]) == (4, 2)
    assert [record["controlType"] for record in batch["records"]] == ["ABORT"]


def test_damaged_batches(java_oracle: JavaOracle) -> None:
    data = java_oracle.write_batch(batch_spec("none"))
    damaged, intact = java_oracle.read_batches(data[:-1] + b"\x7f" + data)
    assert (damaged["valid"], damaged["records"], intact["valid"]) == (False, None, True)
    assert "computed crc" in damaged["error"]
    with pytest.raises(OracleError, match="bytes left over after 1 batches"):
        java_oracle.read_batches(data + data[:-1])
    assert len(java_oracle.read_batches(data + data[:-1], allow_partial=True)) == 1


def test_tables(java_oracle: JavaOracle) -> None:
    errors = {error["code"]: error for error in java_oracle.errors()}
    assert errors[3]["name"] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert errors[3]["exception"] == "UnknownTopicOrPartitionException"
    assert errors[3]["superclasses"][:4] == [
        "InvalidMetadataException",
        "RefreshRetriableException",
        "RetriableException",
        "ApiException",
    ]
    assert (errors[3]["retriable"], errors[-1]["retriable"], errors[0]["exception"]) == (True, False, None)
    keys = {key["id"]: key for key in java_oracle.api_keys()}
    assert (keys[18]["name"], keys[18]["enumName"]) == ("ApiVersions", "API_VERSIONS")
    assert set(keys[18]["responseHeaderVersions"].values()) == {0}
    assert keys[18]["requestHeaderVersions"]["2"] == 1
    assert keys[18]["requestHeaderVersions"]["3"] == 2
    assert set(keys[1]["listeners"]) == {"BROKER", "CONTROLLER"}


def test_hashes(java_oracle: JavaOracle) -> None:
    assert java_oracle.murmur2([b"21", b"foobar", b"a-little-bit-long-string"]) == [-973932308, -790332482, -985981536]
    assert java_oracle.crc32c(b"123456789") == 0xE3069283


def test_definitions_may_have_comments() -> None:
    text = '// licence\n{ // opens\n  "name": "A//B \\" // C",\n  "fields": [] // ends\n}\n'
    assert parse_definition(text) == {"name": 'A//B " // C', "fields": []}
