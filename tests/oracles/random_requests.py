"""Random requests that are well formed: every field has a value of its type, and most of them mean something.

A value comes from what the field is called. ``group_id`` is one of a few groups, ``partition_index`` a partition that
exists or one that does not, and fields without a rule of their own get small numbers and the limits of their type. So
requests get past the first check of a handler often enough to reach the others.

Names are symbolic, because each broker chooses ids of its own and each run needs fresh names:

* ``~`` in a string stands for the tag of the run: ``topic-a~``.
* A string that begins with ``@``, a uuid that begins with `SYMBOL_PREFIX` and an integer from `SYMBOL_BASE` on stand
  for an id that the brokers have chosen: a member id, a topic id, a producer id, the id of a fetch session.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import Field
from barnabas.protocol.message import Request, Struct
from barnabas.protocol.messages.update_features import UpdateFeaturesRequest
from log_fixtures import client_batch

SYMBOL_PREFIX: Final = b"\xfe\xed\xfe\xed\xfe\xed\xfe\xed"
SYMBOL_BASE: Final = 1_900_000_000

TOPICS: Final = ("topic-a~", "topic-b~")
"""The topics that exist when a run begins: the first has two partitions, the second has one."""
NAMES_OF_TOPICS: Final = (*TOPICS, *TOPICS, "topic-c~", "absent~", "", "not a name~", "..", "x" * 250)
GROUPS: Final = ("group-a~", "group-b~", "group-c~", "group-d~", "")
NODE_ID: Final = 1

_LIMITS: Final = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}


@dataclass
class Ids:
    """The ids that brokers have chosen in this run, as symbols, the newest last."""

    member_id: list[str] = field(default_factory=list)
    topic_id: list[Uuid] = field(default_factory=list)
    producer_id: list[int] = field(default_factory=list)
    session_id: list[int] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)
    """Generations of classic groups and epochs of members."""


Pool = Callable[[random.Random, Ids], Any]


def _of(*values: Any) -> Pool:
    return lambda chance, _ids: chance.choice(values)


def _mostly(usual: Any, *others: Any) -> Pool:
    """The first value three times out of four."""
    return lambda chance, _ids: usual if chance.random() < 0.75 else chance.choice(others)


def _known(kind: str, *others: Any) -> Pool:
    """An id that a broker has chosen, if there is one."""

    def pick(chance: random.Random, ids: Ids) -> Any:
        known = getattr(ids, kind)
        return chance.choice(known[-4:]) if known and chance.random() < 0.75 else chance.choice(others)

    return pick


def _records(chance: random.Random, ids: Ids) -> bytes | None:
    if chance.random() < 0.1:
        return chance.choice((None, b"", b"\0" * 20))
    options: dict[str, Any] = {}
    if chance.random() < 0.5:
        options = {
            "producer_id": chance.choice((0, 1, 5)),
            "epoch": chance.choice((0, 1)),
            "sequence": chance.choice((0, 0, 1, 5)),
            "transactional": chance.random() < 0.3,
        }
    return bytes(client_batch([b"value"] * chance.choice((1, 1, 3)), **options))


_EPOCH: Final = _known("epochs", -1, 0, 1, 2, -2)
_TIMEOUT: Final = _mostly(30_000, 0, -1)
_TOPIC: Final = _of(*NAMES_OF_TOPICS)
_GROUP: Final = _of(*GROUPS)
_PARTITION: Final = _mostly(0, 1, 2, -1, 2**31 - 1)
_OFFSET: Final = _of(0, 0, 1, 2, 5, -1, -2, 2**62)
_TRANSACTIONAL_ID: Final = _of("txn-a~", "txn-a~", "txn-b~", "", None)
_TEXT: Final = _of("", "a", "b~", "zażółć")
_BROKERS: Final = _mostly(NODE_ID, 2, -1, 0)
_USER: Final = _of("user-a~", "user-b~", "")
_CONFIG: Final = _of(
    "retention.ms", "cleanup.policy", "min.insync.replicas", "max.message.bytes", "segment.bytes", "compression.type",
    "no.such.config", "", "message.timestamp.type", "leader.replication.throttled.replicas", "flush.ms",
    "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms", "metrics", "interval.ms", "match",
    "log.cleaner.threads", "log.retention.ms", "message.max.bytes", "background.threads", "node.id",
)  # fmt: skip
_CONFIG_VALUE: Final = _of(
    "1000000", "compact", "delete,compact", "", "-1", "0", "nonsense", None, "1:1", "zstd", "LogAppendTime", "50000",
    "client_id=a.*", "org.apache.kafka.consumer.", "5000",
)  # fmt: skip

_POOLS: Final[dict[str, Pool]] = {
    "acks": _of(1, -1, 2, -2),
    "allow_auto_topic_creation": _mostly(False, False),
    "assignment": _of(b"", b"ours"),
    "auth_bytes": _of(b"", b"\0user\0password"),
    "broker_id": _of(2, 5, 0, 2**31 - 1),  # unregistering the running broker would end the run
    "broker_ids": _BROKERS,
    "client_software_name": _of("fuzz", "", "a b", "x"),
    "client_software_version": _of("1.0", "", "-1"),
    "committed_leader_epoch": _of(-1, 0, 1, -2),
    "committed_metadata": _of("", None, "m", "x" * 5_000),
    "committed_offset": _OFFSET,
    "config_operation": _of(0, 0, 1, 2, 3, 0, 1, 2, 3, 7),
    "configuration_keys": _CONFIG,
    "coordinator_epoch": _of(0, 1, -1),
    "coordinator_keys": _of("group-a~", "txn-a~", "", "k~"),
    "count": _of(1, 2, 3, 4, 0, -1),
    "current_leader_epoch": _mostly(-1, 0, 1, -2, 2**31 - 1),
    "duration_filter": _of(-1, 0, 10**9),
    "election_type": _of(0, 1, 0, 1, 2, -1),
    "endpoint_type": _of(1, 1, 1, 2, 0, 3),
    "entity_name": _of("user-a~", "client~", None, "10.0.0.1", ""),
    "entity_type": _of("user", "client-id", "ip", "nonsense", ""),
    "feature": _of("metadata.version", "group.version", "transaction.version", "kraft.version", "no.such.feature", ""),
    "fetch_offset": _OFFSET,
    "generation_id": _EPOCH,
    "generation_id_or_member_epoch": _EPOCH,
    "group_id": _GROUP,
    "group_ids": _GROUP,
    "group_instance_id": _of(None, None, "instance~", ""),
    "groups_names": _GROUP,
    "groups": _GROUP,
    "index": _PARTITION,
    "instance_id": _of(None, None, "instance~", ""),
    "isolation_level": _mostly(0, 1, 1, 7),
    "iterations": _mostly(4096, 1, 0, -1, 16_384, 100_000),
    "key": _of("group-a~", "txn-a~", "", "k~"),
    "key_type": _of(0, 1, 0, 1, 2, 3, -1),
    "last_fetched_epoch": _mostly(-1, 0, 5, -2),
    "leader_epoch": _of(0, 0, 1, -1, -2),
    "log_start_offset": _mostly(-1, 0),
    "match": _of("user-a~", "client~", None, "10.0.0.1", ""),
    "match_type": _of(0, 1, 2, 3, -1),
    "max_bytes": _mostly(1 << 20, 0, 1, -1),
    "max_version_level": _of(0, 1, 2, 1, 30, -1, 99),
    "max_wait_ms": _of(0, 0, 20, -1),
    "mechanism": _of(1, 2, 1, 2, 0, 3, -1),
    "member_epoch": _EPOCH,
    "member_id": _known("member_id", "", "", "member~", "A" * 22),
    "metadata": _of(b"", b"m"),
    "min_bytes": _of(0, 1, -1, 10**6),
    "num_partitions": _mostly(1, -1, 2, 0, -2),
    "offset": _OFFSET,
    "operation": _of(2, 3, 4, 8, 1, 0, 14, 99, -1),
    "partition": _PARTITION,
    "partition_index": _PARTITION,
    "partition_indexes": _PARTITION,
    "partition_max_bytes": _mostly(1 << 20, 0, 1, -1),
    "partitions": _PARTITION,
    "path": _of("/no/such/directory", "", "relative"),
    "pattern_type_filter": _of(3, 4, 1, 2, 0, 9, -1),
    "permission_type": _of(3, 2, 1, 0, 9),
    "port": _of(9, 0, 65_535),
    "principal": _of("User:user-a~", "User:user-b~", "", "nonsense", "User:"),
    "principal_filter": _of("User:user-a~", None, "", "nonsense"),
    "producer_epoch": _of(0, 0, 1, -1, 5, 2**15 - 1),
    "producer_id": _known("producer_id", -1, -1, 0, 7_777),
    "producer_id_filters": _known("producer_id", 0, 7_777),
    "protocol_name": _of("range", "range", None, ""),
    "protocol_type": _of("consumer", "consumer", "consumer", "connect", "", None),
    "rebalance_timeout_ms": _mostly(1_500, -1, 0),  # a join waits for so long
    "records": _records,
    "replica_directory_id": _of(ZERO_UUID),
    "replica_id": _mostly(-1, -2, 1, 5),
    "replica_epoch": _of(-1, 0, 5),
    "replicas": _BROKERS,
    "replication_factor": _mostly(1, -1, 2, 0),
    "resource_name": _of(*TOPICS, "topic-c~", "absent~", "1", "2", "", "group-a~", "metrics~", "x"),
    "resource_name_filter": _of(*TOPICS, "group-a~", None, "", "*"),
    "resource_pattern_type": _of(3, 3, 4, 1, 2, 0, 9),
    "resource_type": _of(2, 2, 4, 32, 16, 8, 3, 5, 1, 0, -1, 99),
    "resource_type_filter": _of(2, 3, 4, 1, 5, 0, 99),
    "resource_types": _of(2, 4, 8, 16, 32, 1, 99),
    "response_partition_limit": _of(2000, 1, 2, 0, -1),
    "retention_time_ms": _mostly(-1, 0, 1_000, 2**63 - 1, -(2**63)),
    "salt": _of(b"salt", b"", b"another"),
    "salted_password": _of(b"p" * 32, b"", b"p" * 64),
    "server_assignor": _of(None, None, "uniform", "range", "nonsense", ""),
    "session_epoch": _of(0, -1, 1, 2, 5, -2),
    "session_id": _known("session_id", 0, 0, 77, -1),
    "session_timeout_ms": _mostly(30_000, 0, -1, 10, 2**31 - 1),
    "state_filters": _of("Ongoing", "Empty", "CompleteCommit", "nonsense", ""),
    "states_filter": _of("Stable", "Empty", "stable", "nonsense", ""),
    "subscribed_topic_names": _TOPIC,
    "subscribed_topic_regex": _of(None, None, None, "", "topic-.~", "("),
    "timeout_ms": _TIMEOUT,
    "timestamp": _of(-1, -2, -3, 0, 1_700_000_000_000, 2**62, -4, -5, -6, -7),
    "topic": _TOPIC,
    "topic_id": _known("topic_id", ZERO_UUID, Uuid(b"\1" * 16)),
    "topic_name": _TOPIC,
    "topic_names": _TOPIC,
    "transaction_timeout_ms": _mostly(60_000, 0, -1, 2**31 - 1),
    "transaction_version": _of(1, 2, 0),
    "transactional_id": _TRANSACTIONAL_ID,
    "transactional_id_pattern": _of(None, "", "txn-.~", "("),
    "transactional_ids": _TRANSACTIONAL_ID,
    "types_filter": _of("classic", "consumer", "Consumer", "nonsense", ""),
    "upgrade_type": _of(1, 1, 2, 3, 0, 4),
    "v3_and_below_producer_epoch": _of(0, 0, 1, -1, 5),
    "v3_and_below_producer_id": _known("producer_id", -1, 0, 7_777),
    "v3_and_below_transactional_id": _TRANSACTIONAL_ID,
    "voter_id": _of(2, 5, -1, 0),
    "voter_directory_id": _of(ZERO_UUID, Uuid(b"\2" * 16)),
}

_POOLS_OF_STRUCTS: Final[dict[tuple[str, str], Pool]] = {
    ("AlterableConfig", "name"): _CONFIG,
    ("CreatableTopicConfig", "name"): _CONFIG,
    ("AlterableConfig", "value"): _CONFIG_VALUE,
    ("CreatableTopicConfig", "value"): _CONFIG_VALUE,
    ("JoinGroupRequestProtocol", "name"): _of("range", "range", "roundrobin", ""),
    # Apache Kafka's node ends when it is to add a voter with an empty listener name, or that it cannot reach. So no
    # request names a whole voter.
    ("AddRaftVoterRequest", "voter_directory_id"): _of(ZERO_UUID),
    ("Listener", "name"): _of("CONTROLLER", "OTHER"),
    ("Listener", "host"): _of("127.0.0.1", ""),
    ("AclCreation", "host"): _of("*", "127.0.0.1", ""),
    ("OpData", "key"): _of("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate",
                           "connection_creation_rate", "nonsense", ""),
    # A quota that is small would slow the run down, so valid values are large.
    ("OpData", "value"): _of(1e9, 1e9, 2e9, 1e9 + 0.5, 0.0, -1.0, math.inf, -math.inf, math.nan, 1e300),
    ("ScramCredentialDeletion", "name"): _USER,
    ("ScramCredentialUpsertion", "name"): _USER,
    ("UserName", "name"): _USER,
    ("SaslHandshakeRequest", "mechanism"): _of("PLAIN", "SCRAM-SHA-256", "", "nonsense"),
    ("DescribeQuorumRequest", "topic_name"): _mostly("__cluster_metadata", "topic-a~", ""),
    ("FetchRequest", "cluster_id"): _of(None),
    ("FetchRequest", "replica_id"): _of(-1),
    ("ReplicaState", "replica_id"): _of(-1),
    # Downgrades of what a cluster runs on cannot be taken back.
    ("UpdateFeaturesRequest", "validate_only"): _of(True),
    ("DescribeAclsRequest", "host_filter"): _of("*", None, ""),
    ("DeleteAclsFilter", "host_filter"): _of("*", None, ""),
}  # fmt: skip


def random_request(api: ApiKey, version: int, chance: random.Random, ids: Ids) -> Request:
    """One request, in terms of symbols."""
    request: Any = _fill(api.request, version, chance, ids)
    if isinstance(request, UpdateFeaturesRequest) and version == 0:
        for update in request.feature_updates:
            update.feature = "no.such.feature"  # there is no validate_only in this version, and no way back
    return request  # type: ignore[no-any-return]


def _fill(cls: type[Struct], version: int, chance: random.Random, ids: Ids) -> Struct:
    return cls(
        **{
            one.name: _value(cls, one, version, chance, ids)
            for one in cls.fields
            if version in one.versions or one.is_tagged(version)
        }
    )


def _value(cls: type[Struct], one: Field, version: int, chance: random.Random, ids: Ids) -> Any:
    nullable = version in one.nullable or (
        one.kind == "struct" and one.is_tagged(version) and one.default_factory is None
    )
    if one.is_tagged(version) and chance.random() < 0.5:
        return one.make_default()
    if one.kind == "array":
        if nullable and chance.random() < 0.15:
            return None
        return _array(cls, one, version, chance, ids)
    if one.kind == "struct":
        if nullable and chance.random() < 0.5:
            return None
        assert isinstance(one.element, type)
        return _fill(one.element, version, chance, ids)
    value = _scalar(cls, one.name, one.kind, chance, ids)
    if value is None and not nullable:
        return "" if one.kind == "string" else b""
    if nullable and one.kind in {"string", "bytes"} and chance.random() < 0.1:
        return None
    return value


def _array(cls: type[Struct], one: Field, version: int, chance: random.Random, ids: Ids) -> list[Any]:
    elements: list[Any] = []
    for _ in range(chance.choice((0, 1, 1, 1, 1, 1, 2, 2, 3))):
        if elements and one.name == "protocols":
            break  # two of one name stop a classic group of Kafka's for good
        if elements and chance.random() < 0.25:
            elements.append(elements[0])  # the same entry twice
        elif isinstance(one.element, str):
            value = _scalar(cls, one.name, one.element, chance, ids)
            elements.append("" if value is None else value)
        else:
            assert one.element is not None
            elements.append(_fill(one.element, version, chance, ids))
    return elements


def _scalar(cls: type[Struct], name: str, kind: str, chance: random.Random, ids: Ids) -> Any:
    pool = _POOLS_OF_STRUCTS.get((cls.__name__, name)) or _POOLS.get(name)
    if pool is None and name == "name":
        pool = _TOPIC
    if pool is not None:
        return pool(chance, ids)
    if kind in _LIMITS:
        low, high = _LIMITS[kind]
        return chance.choice([value for value in (0, 0, 1, 1, 2, -1, -2, 100, low, high) if low <= value <= high])
    if kind == "bool":
        return chance.random() < 0.5
    if kind == "float64":
        return chance.choice((0.0, 1.0, -1.0, math.nan))
    if kind == "uuid":
        return chance.choice((ZERO_UUID, Uuid(b"\1" * 16)))
    if kind == "string":
        return _TEXT(chance, ids)
    return chance.choice((b"", b"bytes"))


def symbol_for(kind: str, number: int) -> Any:
    """A symbol for an id that both brokers have just chosen; ``number`` is unique in a run."""
    if kind == "member_id":
        return f"@member-{number}"
    if kind == "topic_id":
        return Uuid(SYMBOL_PREFIX + number.to_bytes(8, "big"))
    return SYMBOL_BASE + number


def is_symbol(value: object) -> bool:
    match value:
        case str():
            return value.startswith("@")
        case bytes():
            return len(value) == 16 and value.startswith(SYMBOL_PREFIX)
        case bool():
            return False
        case int():
            return SYMBOL_BASE <= value < SYMBOL_BASE + 10**7
    return False
