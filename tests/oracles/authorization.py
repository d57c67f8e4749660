"""Requests of every API under different rights, to our broker or to Apache Kafka, and what the responses reveal (A11).

There is one principal, ANONYMOUS, because all listeners are PLAINTEXT. ACLs tell clients apart by their address:

============== ====================================================================================
``127.0.0.1``  the broker itself, which needs ClusterAction on the controller's listener
``127.0.0.2``  the administrator, with every right on everything
``127.0.0.3``  the client under test: no right, or those of one `Grant`
============== ====================================================================================

A grant on topics covers ``orders``, which exists, ``absent`` and ``fresh``, which do not, and ``victim``, which may be
deleted. ``secret`` exists and is never granted. Likewise for the groups ``billing`` and ``audit``, and the
transactional IDs ``pay`` and ``other``. So each response shows what an authorized client sees, and what is hidden.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, Self

from benchmarks.waiting import until

from barnabas.common.errors import Errors
from barnabas.common.identifiers import ZERO_UUID, Uuid, random_uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.framing import encode_request
from barnabas.protocol.message import Request, Struct
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.records.builder import RecordBatchBuilder
from barnabas.security.acl import (
    CLUSTER_NAME,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
    from_bit_field,
)
from barnabas.security.principal import ANONYMOUS, serialize_principal
from oracles.side_by_side import Connection, has_code

BROKER_HOST: Final = "127.0.0.1"
ADMIN_HOST: Final = "127.0.0.2"
CLIENT_HOST: Final = "127.0.0.3"
SECONDS: Final = 60.0
STRANGER: Final = Uuid(b"no such topic id")
NO_OPERATIONS: Final = -(2**31)
THREE: Final = ("orders", "absent", "secret")
"""Granted, granted but absent, and not granted."""
EXISTING: Final = ("orders", "secret", "victim")

_O, _R = AclOperation, ResourceType
NAMES: Final = {
    _R.TOPIC: ("orders", "absent", "fresh", "victim"),
    _R.GROUP: ("billing", "old", "new"),
    _R.TRANSACTIONAL_ID: ("pay",),
    _R.CLUSTER: (CLUSTER_NAME,),
}


# -- rights


class Right(NamedTuple):
    resource_type: ResourceType
    operation: AclOperation
    names: tuple[str, ...] = ()
    """Those of `NAMES` if empty."""
    pattern_type: PatternType = PatternType.LITERAL
    permission: AclPermissionType = AclPermissionType.ALLOW

    def acls(self) -> Iterator[dict[str, Any]]:
        for name in self.names or NAMES[self.resource_type]:
            yield acl(CLIENT_HOST, self.resource_type, name, self.operation, self.pattern_type, self.permission)


@dataclass(frozen=True)
class Grant:
    """Rights that the client has at once; their title in the document."""

    title: str
    rights: tuple[Right, ...] = ()


def acl(
    host: str,
    resource_type: ResourceType,
    name: str,
    operation: AclOperation,
    pattern_type: PatternType = PatternType.LITERAL,
    permission: AclPermissionType = AclPermissionType.ALLOW,
) -> dict[str, Any]:
    return {
        "resource_type": resource_type,
        "resource_name": name,
        "resource_pattern_type": pattern_type,
        "principal": str(ANONYMOUS),
        "host": host,
        "operation": operation,
        "permission_type": permission,
    }


_KINDS: Final = {
    _R.TOPIC: (
        _O.READ,
        _O.WRITE,
        _O.CREATE,
        _O.DELETE,
        _O.ALTER,
        _O.DESCRIBE,
        _O.DESCRIBE_CONFIGS,
        _O.ALTER_CONFIGS,
    ),
    _R.GROUP: (_O.READ, _O.DELETE, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
    _R.TRANSACTIONAL_ID: (_O.WRITE, _O.DESCRIBE, _O.TWO_PHASE_COMMIT),
    _R.CLUSTER: (
        _O.CREATE,
        _O.ALTER,
        _O.DESCRIBE,
        _O.CLUSTER_ACTION,
        _O.DESCRIBE_CONFIGS,
        _O.ALTER_CONFIGS,
        _O.IDEMPOTENT_WRITE,
    ),
}


def _both(*rights: Right) -> Grant:
    return Grant(" + ".join(f"{right.operation.title} {right.resource_type.title}" for right in rights), rights)


NOTHING: Final = Grant("no right")
SUPER_USER: Final = Grant("super user")
SINGLE: Final = tuple(
    Grant(f"{operation.title} {kind.title}", (Right(kind, operation),))
    for kind, operations in _KINDS.items()
    for operation in operations
)
PAIRS: Final = (
    _both(Right(_R.GROUP, _O.READ), Right(_R.TOPIC, _O.READ)),
    _both(Right(_R.GROUP, _O.READ), Right(_R.TOPIC, _O.DESCRIBE)),
    _both(Right(_R.GROUP, _O.DESCRIBE), Right(_R.TOPIC, _O.DESCRIBE)),
    _both(Right(_R.GROUP, _O.DELETE), Right(_R.TOPIC, _O.READ)),
    _both(Right(_R.TRANSACTIONAL_ID, _O.WRITE), Right(_R.TOPIC, _O.WRITE)),
    _both(Right(_R.TRANSACTIONAL_ID, _O.WRITE), Right(_R.GROUP, _O.READ)),
    _both(Right(_R.TRANSACTIONAL_ID, _O.WRITE), Right(_R.GROUP, _O.READ), Right(_R.TOPIC, _O.READ)),
    _both(Right(_R.TRANSACTIONAL_ID, _O.DESCRIBE), Right(_R.TOPIC, _O.DESCRIBE)),
    _both(Right(_R.TOPIC, _O.CREATE), Right(_R.TOPIC, _O.DESCRIBE_CONFIGS)),
    _both(Right(_R.TOPIC, _O.DELETE), Right(_R.TOPIC, _O.DESCRIBE)),
    _both(Right(_R.CLUSTER, _O.CREATE), Right(_R.TOPIC, _O.DESCRIBE)),
)
RULES: Final = (
    Grant("All Topic on *", (Right(_R.TOPIC, _O.ALL, ("*",)),)),
    Grant("Read Topic on the prefix or", (Right(_R.TOPIC, _O.READ, ("or",), PatternType.PREFIXED),)),
    Grant(
        "All Topic on *, but Describe denied",
        (Right(_R.TOPIC, _O.ALL, ("*",)), Right(_R.TOPIC, _O.DESCRIBE, permission=AclPermissionType.DENY)),
    ),
    Grant(
        "All Topic, but all denied on the prefix or",
        (
            Right(_R.TOPIC, _O.ALL),
            Right(_R.TOPIC, _O.ALL, ("or",), PatternType.PREFIXED, AclPermissionType.DENY),
        ),
    ),
    Grant("All Group on *", (Right(_R.GROUP, _O.ALL, ("*",)),)),
    Grant("All Cluster", (Right(_R.CLUSTER, _O.ALL),)),
    Grant(
        "All on everything",
        tuple(Right(kind, _O.ALL, (CLUSTER_NAME if kind is _R.CLUSTER else "*",)) for kind in NAMES),
    ),
)
GRANTS: Final = (NOTHING, *SINGLE, *PAIRS, *RULES)


# -- requests


class Id(NamedTuple):
    """The id of a topic on the broker at hand; without a name, an id that was never used."""

    topic: str = ""


@dataclass(frozen=True)
class Case:
    """One request. `what` tells it from other requests of the same API."""

    api: ApiKey
    what: str = ""
    body: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)
    version: int | None = None
    """The newest that both brokers speak, if None."""
    on_controller: bool = False

    @property
    def title(self) -> str:
        return f"{self.api.title}, {self.what}" if self.what else self.api.title


def _records(*, transactional: bool = False) -> bytes:
    builder = RecordBatchBuilder()
    builder.append(time.time_ns() // 1_000_000, None, b"x")
    if transactional:
        builder.set_producer_state(4711, 0, 0, is_transactional=True)
    return bytes(builder.close())


def _topics(key: str = "name", partitions: Any = None, names: Iterable[str] = THREE, **more: Any) -> list[Any]:
    """Entries for topics that are granted, granted but absent, and not granted."""
    return [{key: name, "partitions": [0] if partitions is None else partitions, **more} for name in names]


def _ids(partitions: Any, key: str = "partitions") -> list[Any]:
    return [{"topic_id": topic, key: partitions} for topic in (Id("orders"), STRANGER, Id("secret"))]


def _resources(configs: str, value: Any) -> list[Any]:
    topics = [(2, name) for name in THREE]
    others = [(4, "1"), (4, ""), (32, "billing"), (32, "audit"), (16, "subscription")]
    keys = {2: "retention.ms", 4: "num.io.threads", 32: "consumer.session.timeout.ms", 16: "interval.ms"}
    texts = {2: "86400000", 4: "8", 32: "45000", 16: "60000"}
    return [
        {"resource_type": kind, "resource_name": name, configs: value(keys[kind], texts[kind])}
        for kind, name in (*topics, *others)
    ]


K: Final = ApiKey
_COMMIT: Final = [{"partition_index": 0, "committed_offset": 0}]
_VOTER: Final = {"cluster_id": "another cluster", "voter_id": 9, "voter_directory_id": STRANGER}
_ANY_ACL: Final = {
    "resource_type_filter": ResourceType.ANY,
    "resource_name_filter": None,
    "pattern_type_filter": PatternType.ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": AclOperation.ANY,
    "permission_type": AclPermissionType.ANY,
}
_NEW_ACL: Final = {
    **acl("192.0.2.9", _R.TOPIC, "elsewhere", _O.READ),
    "principal": "User:nobody",
}
_NEW_ACL_FILTER: Final = {**_ANY_ACL, "principal_filter": "User:nobody"}
_TOPIC: Final = {"num_partitions": 1, "replication_factor": 1}
_ADMIN: Final = (
    Case(K.CREATE_TOPICS, "", {
        "topics": [{"name": name, **_TOPIC} for name in ("orders", "fresh", "hidden")], "validate_only": True}),
    Case(K.CREATE_PARTITIONS, "", {
        "topics": [{"name": name, "count": 3, "assignments": None} for name in THREE],
        "timeout_ms": 10_000, "validate_only": True}),
    Case(K.ALTER_CONFIGS, "", {
        "resources": _resources("configs", lambda name, value: [{"name": name, "value": value}]),
        "validate_only": True}),
    Case(K.INCREMENTAL_ALTER_CONFIGS, "", {
        "resources": _resources("configs", lambda name, value: [{"name": name, "value": value}]),
        "validate_only": True}),
    Case(K.DESCRIBE_CONFIGS, "", {"resources": _resources("configuration_keys", lambda name, _value: [name])}),
    Case(K.ELECT_LEADERS, "", {"topic_partitions": _topics("topic", names=THREE)}),
    Case(K.ALTER_PARTITION_REASSIGNMENTS, "", {
        "topics": _topics(partitions=[{"partition_index": 0, "replicas": None}])}),
    Case(K.LIST_PARTITION_REASSIGNMENTS, "", {"topics": [{"name": "orders", "partition_indexes": [0]}]}),
    Case(K.ALTER_CLIENT_QUOTAS, "", {
        "entries": [{"entity": [{"entity_type": "user", "entity_name": "u"}],
                     "ops": [{"key": "producer_byte_rate", "value": 1.0}]}], "validate_only": True}),
    Case(K.ALTER_USER_SCRAM_CREDENTIALS, "", {"deletions": [{"name": "nobody", "mechanism": 1}]}),
    Case(K.DESCRIBE_ACLS, "", {**_ANY_ACL, "principal_filter": "User:nobody"}),
    Case(K.CREATE_ACLS, "", {"creations": [_NEW_ACL]}),
    Case(K.DELETE_ACLS, "", {"filters": [_NEW_ACL_FILTER]}),
    Case(K.DESCRIBE_QUORUM, "", {
        "topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}),
    Case(K.UPDATE_FEATURES, "", {"feature_updates": [{"feature": "no.such.feature", "max_version_level": 1}],
                                 "validate_only": True}),
    Case(K.UNREGISTER_BROKER, "", {"broker_id": 99}),
    Case(K.ADD_RAFT_VOTER, "", {
        **_VOTER, "timeout_ms": 100, "listeners": [{"name": "CONTROLLER", "host": "h", "port": 1}]}),
    Case(K.REMOVE_RAFT_VOTER, "", _VOTER),
    Case(K.CREATE_DELEGATION_TOKEN, "for bob", {"owner_principal_type": "User", "owner_principal_name": "bob"}),
    Case(K.RENEW_DELEGATION_TOKEN, "", {"hmac": b"hmac"}),
    Case(K.EXPIRE_DELEGATION_TOKEN, "", {"hmac": b"hmac"}),
)  # fmt: skip
BROKER_CASES: Final = (
    Case(K.PRODUCE, "by name", {"acks": 1, "timeout_ms": 10_000, "topic_data": [
        {"name": name, "partition_data": [{"index": 0, "records": _records()}]} for name in THREE]},
        12),
    Case(K.PRODUCE, "by id", {"acks": 1, "timeout_ms": 10_000, "topic_data": _ids(
        [{"index": 0, "records": _records()}], "partition_data")}),
    Case(K.PRODUCE, "in a transaction", {"acks": -1, "timeout_ms": 10_000, "transactional_id": "pay", "topic_data": [
        {"name": name, "partition_data": [{"index": 0, "records": _records(transactional=True)}]}
        for name in ("orders", "secret")]}, 11),
    Case(K.FETCH, "by name", {"topics": _topics("topic", [{"partition": 0, "partition_max_bytes": 1000}])}, 12),
    Case(K.FETCH, "by id", {"topics": _ids([{"partition": 0, "partition_max_bytes": 1000}])}),
    Case(K.FETCH, "as a follower", {
        "replica_id": 2, "topics": _topics("topic", [{"partition": 0, "partition_max_bytes": 1000}])}, 12),
    Case(K.LIST_OFFSETS, "", {
        "replica_id": -1, "topics": _topics(partitions=[{"partition_index": 0, "timestamp": -1}])}),
    Case(K.METADATA, "all topics", {"topics": None, "include_topic_authorized_operations": True}),
    Case(K.METADATA, "by name", {
        "topics": [{"name": name} for name in THREE], "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": True}),
    Case(K.METADATA, "by id", {
        "topics": [{"name": None, "topic_id": topic} for topic in (Id("orders"), STRANGER, Id("secret"))],
        "allow_auto_topic_creation": False}),
    Case(K.METADATA, "with the cluster's operations", {
        "topics": [], "include_cluster_authorized_operations": True}, 10),
    Case(K.METADATA, "creating topics", {"topics": [{"name": "fresh"}, {"name": "hidden"}]}),
    Case(K.DESCRIBE_TOPIC_PARTITIONS, "by name", {"topics": [{"name": name} for name in THREE]}),
    Case(K.DESCRIBE_TOPIC_PARTITIONS, "all topics", {"topics": []}),
    Case(K.OFFSET_COMMIT, "by name", {"group_id": "billing", "topics": _topics(partitions=_COMMIT)}, 9),
    Case(K.OFFSET_COMMIT, "by id", {"group_id": "billing", "topics": _ids(_COMMIT)}),
    Case(K.OFFSET_FETCH, "by name", {"groups": [
        {"group_id": group, "topics": [{"name": name, "partition_indexes": [0]} for name in THREE]}
        for group in ("billing", "audit")]}, 9),
    Case(K.OFFSET_FETCH, "by id", {"groups": [{"group_id": "billing", "topics": _ids([0], "partition_indexes")}]}),
    Case(K.OFFSET_FETCH, "all topics", {
        "groups": [{"group_id": group, "topics": None} for group in ("billing", "audit")]}),
    Case(K.OFFSET_DELETE, "", {"group_id": "billing", "topics": _topics(partitions=[{"partition_index": 0}])}),
    Case(K.FIND_COORDINATOR, "groups", {"key_type": 0, "coordinator_keys": ["billing", "audit"]}),
    Case(K.FIND_COORDINATOR, "transactions", {"key_type": 1, "coordinator_keys": ["pay", "other"]}),
    Case(K.JOIN_GROUP, "", {"group_id": "new", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000,
                            "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}]}),
    Case(K.HEARTBEAT, "", {"group_id": "new", "generation_id": 1, "member_id": "m"}),
    Case(K.LEAVE_GROUP, "", {"group_id": "new", "members": [{"member_id": "m"}]}),
    Case(K.SYNC_GROUP, "", {"group_id": "new", "generation_id": 1, "member_id": "m"}),
    Case(K.DESCRIBE_GROUPS, "", {"groups": ["billing", "audit"], "include_authorized_operations": True}),
    Case(K.LIST_GROUPS),
    Case(K.DELETE_GROUPS, "", {"groups_names": ["old", "audit"]}),
    Case(K.CONSUMER_GROUP_HEARTBEAT, "names", {
        "group_id": "new", "member_id": "m", "member_epoch": 1, "subscribed_topic_names": ["orders", "secret"]}),
    Case(K.CONSUMER_GROUP_HEARTBEAT, "one name", {
        "group_id": "new", "member_id": "m", "member_epoch": 1, "subscribed_topic_names": ["orders"]}),
    Case(K.CONSUMER_GROUP_HEARTBEAT, "a pattern", {
        "group_id": "new", "member_id": "m", "member_epoch": 1, "subscribed_topic_regex": ".*"}),
    Case(K.CONSUMER_GROUP_DESCRIBE, "", {"group_ids": ["billing", "audit"], "include_authorized_operations": True}),
    Case(K.SASL_HANDSHAKE, "", {"mechanism": "PLAIN"}),
    Case(K.SASL_AUTHENTICATE, "", {"auth_bytes": b"x"}),
    Case(K.API_VERSIONS, "", {"client_software_name": "test", "client_software_version": "1"}),
    Case(K.DELETE_TOPICS, "by name", {"topics": [{"name": name} for name in ("victim", "absent", "secret")],
                                      "timeout_ms": 10_000}),
    Case(K.DELETE_TOPICS, "by id", {"topics": [{"topic_id": topic} for topic in (Id("victim"), STRANGER, Id("secret"))],
                                    "timeout_ms": 10_000}),
    Case(K.DELETE_RECORDS, "", {
        "topics": _topics(partitions=[{"partition_index": 0, "offset": 0}]), "timeout_ms": 10_000}),
    Case(K.INIT_PRODUCER_ID, "idempotent", {"transactional_id": None, "transaction_timeout_ms": 1000}),
    Case(K.INIT_PRODUCER_ID, "transactional", {"transactional_id": "pay", "transaction_timeout_ms": 1000}),
    Case(K.OFFSET_FOR_LEADER_EPOCH, "", {
        "replica_id": -1, "topics": _topics("topic", [{"partition": 0, "leader_epoch": 0}])}),
    Case(K.ADD_PARTITIONS_TO_TXN, "", {
        "v3_and_below_transactional_id": "pay", "v3_and_below_producer_id": 4711,
        "v3_and_below_topics": _topics()}, 3),
    Case(K.ADD_PARTITIONS_TO_TXN, "by a broker", {"transactions": [
        {"transactional_id": "pay", "producer_id": 4711, "verify_only": True, "topics": _topics()}]}),
    Case(K.ADD_OFFSETS_TO_TXN, "", {"transactional_id": "pay", "producer_id": 4711, "group_id": "billing"}),
    Case(K.END_TXN, "", {"transactional_id": "pay", "producer_id": 4711, "committed": True}),
    Case(K.TXN_OFFSET_COMMIT, "", {"transactional_id": "pay", "group_id": "billing", "producer_id": 4711,
                                   "topics": _topics(partitions=_COMMIT)}, 4),
    Case(K.WRITE_TXN_MARKERS, "", {"markers": [
        {"producer_id": 4711, "topics": [{"name": "absent", "partition_indexes": [0]}]}]}),
    Case(K.DESCRIBE_TRANSACTIONS, "", {"transactional_ids": ["pay", "other"]}),
    Case(K.LIST_TRANSACTIONS),
    Case(K.DESCRIBE_PRODUCERS, "", {"topics": [
        {"name": name, "partition_indexes": [0]} for name in THREE]}),
    Case(K.DESCRIBE_LOG_DIRS, "", {"topics": [{"topic": name, "partitions": [0]} for name in ("orders", "secret")]}),
    Case(K.ALTER_REPLICA_LOG_DIRS, "", {"dirs": [{"path": "/nowhere", "topics": _topics(names=("orders", "secret"))}]}),
    Case(K.DESCRIBE_CLIENT_QUOTAS, "", {"components": [], "strict": False}),
    Case(K.DESCRIBE_USER_SCRAM_CREDENTIALS, "", {"users": [{"name": "nobody"}]}),
    Case(K.DESCRIBE_USER_SCRAM_CREDENTIALS, "all users", {"users": None}),
    Case(K.DESCRIBE_CLUSTER, "", {"include_cluster_authorized_operations": True}),
    Case(K.DESCRIBE_DELEGATION_TOKEN, "", {"owners": None}),
    Case(K.GET_TELEMETRY_SUBSCRIPTIONS, "", {"client_instance_id": Id()}),
    Case(K.PUSH_TELEMETRY, "", {"client_instance_id": Id(), "subscription_id": 7}),
    Case(K.LIST_CONFIG_RESOURCES, "", {"resource_types": [16]}),
    Case(K.LIST_CONFIG_RESOURCES, "topics", {"resource_types": [2]}),
    *_ADMIN,
)  # fmt: skip
CONTROLLER_CASES: Final = (
    Case(K.BROKER_REGISTRATION, "", {"broker_id": 99, "cluster_id": "another cluster", "rack": None}),
    Case(K.BROKER_HEARTBEAT, "", {"broker_id": 99, "broker_epoch": 1}),
    Case(K.CONTROLLER_REGISTRATION, "", {"controller_id": 99}),
    Case(K.ALLOCATE_PRODUCER_IDS, "", {"broker_id": 99, "broker_epoch": 1}),
    Case(K.ALTER_PARTITION, "", {"broker_id": 99, "broker_epoch": 1}),
    Case(K.ASSIGN_REPLICAS_TO_DIRS, "", {"broker_id": 99, "broker_epoch": 1}),
    Case(K.ENVELOPE, "", {
        "request_data": encode_request(
            CreateTopicsRequest(topics=[], validate_only=True), 7, 1, "client")[4:],
        "request_principal": serialize_principal(ANONYMOUS),
        "client_host_address": socket.inet_aton("192.0.2.8")}),
    Case(K.DESCRIBE_CLUSTER, "", {"include_cluster_authorized_operations": True, "endpoint_type": 2}),
    Case(K.SASL_HANDSHAKE, "", {"mechanism": "PLAIN"}),
    Case(K.SASL_AUTHENTICATE, "", {"auth_bytes": b"x"}),
    Case(K.API_VERSIONS, "", {"client_software_name": "test", "client_software_version": "1"}),
    Case(K.DELETE_TOPICS, "by name", {"topics": [{"name": name} for name in ("victim", "absent", "secret")],
                                      "timeout_ms": 10_000}),
    Case(K.DELETE_TOPICS, "by id", {"topics": [{"topic_id": topic} for topic in (Id("victim"), STRANGER, Id("secret"))],
                                    "timeout_ms": 10_000}),
    *_ADMIN,
)  # fmt: skip
CASES: Final = (
    *BROKER_CASES,
    *(Case(case.api, case.what, case.body, case.version, on_controller=True) for case in CONTROLLER_CASES),
)


def build(kind: type[Struct], values: Mapping[str, Any], ids: Mapping[str, Uuid]) -> Any:
    """A message from plain values."""
    made = kind()
    fields = {one.name: one for one in kind.fields}
    for name, value in values.items():
        element = fields[name].element
        if isinstance(value, list) and isinstance(element, type):
            setattr(made, name, [build(element, one, ids) for one in value])
        elif isinstance(value, Id):
            setattr(made, name, ids[value.topic] if value.topic else random_uuid())
        else:
            setattr(made, name, value)
    return made


# -- a broker


class BoundConnection(Connection):
    """A connection from one address."""

    def __init__(self, port: int, host: str) -> None:
        super().__init__(port)
        self._host = host

    def send(self, request: Request, version: int) -> None:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self.port), SECONDS, (self._host, 0))
        super().send(request, version)

    def ask(self, request: Request, version: int) -> Any:
        self.send(request, version)
        return self.receive(request.api_key, version)


class Side:
    """One of the brokers, seen by the administrator and by the client under test."""

    def __init__(self, port: int, controller_port: int) -> None:
        self.admin = BoundConnection(port, ADMIN_HOST)
        self.admin_of_controller = BoundConnection(controller_port, ADMIN_HOST)
        self.client = BoundConnection(port, CLIENT_HOST)
        self.client_of_controller = BoundConnection(controller_port, CLIENT_HOST)
        self.ids: dict[str, Uuid] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for one in (self.admin, self.admin_of_controller, self.client, self.client_of_controller):
            one.close()

    def _admin(self, api: ApiKey, version: int, **body: Any) -> Any:
        return self.admin.ask(build(api.request, body, self.ids), version)

    # -- the state that the requests are about

    def restore(self) -> None:
        """Makes topics, offsets and a transaction as they were before a grant was tried."""
        until(self._has_topics, lambda: str(self.ids), SECONDS)
        for group in ("billing", "audit", "old"):
            until(partial(self._has_committed, group), "offsets are committed", SECONDS)
        until(self._has_transactions, "transactional ids exist", SECONDS)

    def _has_topics(self) -> bool:
        present = self._topics()
        missing = [{"name": name, **_TOPIC} for name in EXISTING if name not in present]
        extra = [{"name": name} for name in present if name not in EXISTING]
        if missing:
            self._admin(K.CREATE_TOPICS, 7, topics=missing, timeout_ms=30_000)
        if extra:
            self._admin(K.DELETE_TOPICS, 6, topics=extra, timeout_ms=30_000)
        return not missing and not extra

    def await_created(self, response: Any) -> None:
        """Waits for topics that a Metadata request has created. Those that it may not create have another error."""
        names = {topic.name for topic in response.topics if topic.error_code == Errors.UNKNOWN_TOPIC_OR_PARTITION}
        until(lambda: names <= self._topics().keys(), lambda: f"{names} in {self.ids}", SECONDS)

    def await_deleted(self, response: Any) -> None:
        """Waits until the broker, too, knows which topics a controller has deleted."""
        deleted = {topic.topic_id for topic in response.responses if not topic.error_code}
        until(lambda: not deleted & set(self._topics().values()), lambda: str(self.ids), SECONDS)

    def _topics(self) -> dict[str, Uuid]:
        found = self._admin(K.METADATA, 12, topics=None)
        self.ids = {
            topic.name: topic.topic_id
            for topic in found.topics
            if not topic.name.startswith("__")
            and not topic.error_code
            and all(not p.error_code for p in topic.partitions)
        }
        return self.ids

    def _has_committed(self, group: str) -> bool:
        self._admin(K.FIND_COORDINATOR, 4, coordinator_keys=[group])
        topics = [{"name": name, "partitions": _COMMIT} for name in ("orders", "secret")]
        response = self._admin(K.OFFSET_COMMIT, 9, group_id=group, topics=topics)
        return not any(one.error_code for topic in response.topics for one in topic.partitions)

    def _has_transactions(self) -> bool:
        self._admin(K.FIND_COORDINATOR, 4, key_type=1, coordinator_keys=["pay", "other"])
        return not any(
            self._admin(K.INIT_PRODUCER_ID, 4, transactional_id=name, transaction_timeout_ms=1000).error_code
            for name in ("pay", "other")
        )

    # -- rights

    def allow_nodes_and_admin(self) -> None:
        """As a super user: what has to hold once there are none."""
        self._create(
            [
                acl(BROKER_HOST, _R.CLUSTER, CLUSTER_NAME, _O.CLUSTER_ACTION),
                *(acl(ADMIN_HOST, kind, "*", _O.ALL) for kind in (_R.TOPIC, _R.GROUP, _R.TRANSACTIONAL_ID)),
                acl(ADMIN_HOST, _R.CLUSTER, CLUSTER_NAME, _O.ALL),
            ]
        )

    def grant(self, grant: Grant) -> None:
        """Gives the client these rights instead of those that it had; returns when they are in force."""
        self._admin(K.DELETE_ACLS, 3, filters=[{**_ANY_ACL, "host_filter": CLIENT_HOST}])
        self._await_acls(0)
        wanted = [one for right in grant.rights for one in right.acls()]
        if wanted:
            self._create(wanted)
            self._await_acls(len(wanted))

    def _create(self, acls: list[dict[str, Any]]) -> None:
        response = self._admin(K.CREATE_ACLS, 3, creations=acls)
        assert not any(one.error_code for one in response.results), response

    def _await_acls(self, count: int) -> None:
        request = build(K.DESCRIBE_ACLS.request, {**_ANY_ACL, "host_filter": CLIENT_HOST}, {})

        def known() -> bool:
            return all(
                sum(len(resource.acls) for resource in one.ask(request, 3).resources) == count
                for one in (self.admin, self.admin_of_controller)
            )

        until(known, lambda: "the ACLs are not in force", SECONDS)

    # -- the client

    def ask(self, case: Case, version: int) -> Any:
        """The response; a coordinator that loads, or ids that are being fetched, are waited for."""
        connection = self.client_of_controller if case.on_controller else self.client
        request = build(case.api.request, case.body, self.ids)
        response: Any = None

        def settled() -> bool:
            nonlocal response
            response = connection.ask(request, version)
            return not has_code(response, _TRANSIENT)

        until(settled, lambda: f"{case.title}: {response}", SECONDS)
        return response


# -- what a response reveals

_NOT_YET: Final = frozenset({Errors.LEADER_NOT_AVAILABLE, Errors.UNKNOWN_TOPIC_OR_PARTITION})
_TRANSIENT: Final = frozenset({Errors.COORDINATOR_LOAD_IN_PROGRESS, Errors.COORDINATOR_NOT_AVAILABLE})

_IGNORED: Final = frozenset(
    {
        "api_keys", "auth_bytes", "broker_epoch", "client_instance_id", "cluster_id", "controller_id",
        "error_message", "finalized_features", "finalized_features_epoch", "high_watermark", "host",
        "log_dir", "log_end_offset", "base_offset", "member_id", "metrics_names", "port", "producer_epoch",
        "producer_id", "push_interval_ms", "session_id", "subscription_id", "supported_features", "telemetry_max_bytes",
        "accepted_compression_types", "throttle_time_ms", "timestamp", "total_bytes", "usable_bytes", "current_voters",
        "observers", "leader_epoch", "last_stable_offset", "log_append_time_ms", "offset", "end_offset",
        "partition_size",
        "transaction_start_time_ms", "active_producers", "mechanisms", "node_endpoints", "current_leader", "records",
        "low_watermark", "node_id", "leader_id", "configs", "read_only", "synonyms", "delta_temporality",
        "ongoing_txn_producer_id", "ongoing_txn_producer_epoch", "response_data", "partition_epoch",
        "session_lifetime_ms",
    }
)  # fmt: skip
"""What differs from broker to broker, or has nothing to do with rights."""
_NAMES: Final = (
    "name", "topic", "topic_name", "group_id", "key", "transactional_id", "resource_name", "user", "topic_id",
)  # fmt: skip


def form(value: Any, ids: Mapping[str, Uuid]) -> Any:
    """A response as plain values that two brokers have in common; lists in one order."""
    match value:
        case Struct():
            found = {one.name: form(getattr(value, one.name), ids) for one in value.fields if one.name not in _IGNORED}
            if any(one.name == "configs" for one in value.fields):
                found["has_configs"] = bool(value.configs)  # type: ignore[attr-defined]
            return found
        case list():
            rows = [form(one, ids) for one in value]
            return sorted((one for one in rows if not _is_internal(one)), key=repr)
        case bytes() if len(value) == 16:
            return next((name for name, known in ids.items() if known == value), _id_text(value))
        case memoryview() | bytearray():
            return bytes(value)
    return value


def _id_text(value: bytes) -> str:
    return {ZERO_UUID: "-", STRANGER: "stranger"}.get(Uuid(value), "an id")


def _is_internal(row: Any) -> bool:
    """Whether it is about a topic of the broker's own, which may not have been created yet."""
    name = row.get("name") or row.get("topic_name") if isinstance(row, dict) else None
    return isinstance(name, str) and name.startswith("__") and name != "__cluster_metadata"


def summary(value: Any) -> str:
    """What a response says about errors, names and operations, in one line for the document."""
    found: list[str] = []
    _collect(value, "", found)
    unique = dict.fromkeys(found)
    shown = [one for one in unique if not any(other.startswith(f"{one} [") for other in unique)]
    return ", ".join(shown) or "no entries"


def _collect(value: Any, label: str, found: list[str]) -> None:
    if isinstance(value, str):
        found.append(value)
        return
    names = [str(value[name]) for name in _NAMES if value.get(name) and value[name] != "-"]
    label = names[0] if names else label
    codes = [value[name] for name in value if name.endswith("error_code")]
    bits = [value[name] for name in value if name.endswith("authorized_operations") and value[name] > NO_OPERATIONS]
    text = f" [{_operations(bits[0])}]" if bits else ""
    text += " with configs" if value.get("has_configs") else ""
    inner = [one for held in value.values() if isinstance(held, list) for one in held if isinstance(one, dict)]
    inner += [held for held in value.values() if isinstance(held, dict)]
    failed = [Errors(code).name for code in codes if code]
    if failed:
        found.extend(f"{label} {name}".strip() + text for name in failed)
    elif names and not any(_has_codes(one) for one in inner):
        found.append(f"{label} ok{text}" if codes or text else label)
    elif text or (codes and not inner):
        found.append(f"{label} ok{text}".strip())
    for one in inner:
        _collect(one, label, found)


def _has_codes(value: Any) -> bool:
    return isinstance(value, dict) and (
        any(name.endswith("error_code") for name in value)
        or any(_has_codes(one) for held in value.values() if isinstance(held, list) for one in held)
    )


def _operations(bits: int) -> str:
    return " ".join(operation.title for operation in sorted(from_bit_field(bits))) or "none"


def versions_of(
    cases: Iterable[Case], broker: Mapping[ApiKey, range], controller: Mapping[ApiKey, range]
) -> dict[Case, int]:
    """The version for each case: its own, or the newest of the listener."""
    return {
        case: (controller if case.on_controller else broker)[case.api][-1] if case.version is None else case.version
        for case in cases
    }


_CHANGED: Final = frozenset(
    {
        K.DELETE_TOPICS,
        K.METADATA,
        K.DESCRIBE_TOPIC_PARTITIONS,
        K.OFFSET_FETCH,
        K.DELETE_GROUPS,
        K.DESCRIBE_GROUPS,
        K.LIST_GROUPS,
    }
)
"""Requests whose responses depend on what requests before them have changed."""

Responses = dict[Grant, dict[Case, Any]]
"""The form of each response."""


def responses_under(
    side: Side, grants: Iterable[Grant], versions: Mapping[Case, int], skipped: Callable[[Case, Grant], bool]
) -> Responses:
    """Sends all requests under each grant."""
    found: Responses = {}
    for grant in grants:
        if grant is not SUPER_USER:
            side.grant(grant)
        found[grant] = {}
        for case, version in versions.items():
            if case.api in _CHANGED or not found[grant]:
                side.restore()
            if not skipped(case, grant):
                response = side.ask(case, version)
                found[grant][case] = form(response, side.ids)
                if case.what == "creating topics":
                    side.await_created(response)
                if case.api is K.DELETE_TOPICS:
                    side.await_deleted(response)
                    side.restore()
    return found
