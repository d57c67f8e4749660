"""What the settings of a node must fulfil together: the rules that no single definition can state.

They are Kafka's, and so is their order where more than one is broken. The messages say what to do about it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import Final

from barnabas.broker.config.listeners import (
    ADVERTISED_LISTENERS,
    CONTROLLER_LISTENER_NAMES,
    INTER_BROKER_LISTENER_NAME,
    LISTENERS,
    PROTOCOL_MAP,
    Listeners,
)
from barnabas.common.config_def import ConfigError, ConfigValues
from barnabas.coordinator.group.group_coordinator_config import assignor_name
from barnabas.network.endpoint import Endpoint
from barnabas.raft.config import BOOTSTRAP_SERVERS, VOTERS

logger = logging.getLogger(__name__)

_UNROUTABLE: Final = "0.0.0.0"  # noqa: S104 - this is where it is refused

CONTROLLER_ONLY_CONFIGS: Final = (
    "num.partitions",
    "default.replication.factor",
    "create.topic.policy.class.name",
    "alter.config.policy.class.name",
)
"""What the controller acts upon; set on a node that is none, they do nothing."""


class ProcessRole(StrEnum):
    """What a node can be."""

    BROKER = "broker"
    CONTROLLER = "controller"


def _require(holds: bool, name: str, message: str) -> None:
    if not holds:
        raise ConfigError(message, name=name)


def _names(endpoints: Iterable[Endpoint]) -> str:
    return ", ".join(endpoint.listener_name for endpoint in endpoints) or "none"


def validate(
    values: ConfigValues, roles: Collection[ProcessRole], listeners: Listeners, voter_ids: Collection[int]
) -> None:
    """Raises `ConfigError` for the first rule that is broken."""
    node_id, broker_id = values.get_int("node.id"), values.get_int("broker.id")
    _require(
        node_id == broker_id,
        "node.id",
        f"node.id ({node_id}) and broker.id ({broker_id}) are the same thing: remove broker.id.",
    )
    _validate_logs(values)
    _validate_replication(values)
    for assignor in values.get_list("group.consumer.assignors"):
        assignor_name(assignor)  # or nobody would hear of it before the first client asks for a coordinator
    _require(
        bool(voter_ids) or bool(values.get_list(BOOTSTRAP_SERVERS)),
        VOTERS,
        f"Nothing says where the controllers are: set {VOTERS} (id@host:port) or {BOOTSTRAP_SERVERS} (host:port).",
    )
    if ProcessRole.CONTROLLER in roles:
        _validate_controller(values, roles, listeners, node_id, voter_ids)
    else:
        _validate_broker_only(values, listeners, node_id, voter_ids)
    if ProcessRole.BROKER in roles:
        _validate_broker_listeners(listeners)
    for endpoint in (*listeners.advertised_broker, *listeners.advertised_controller):
        _require(
            endpoint.host != _UNROUTABLE,
            ADVERTISED_LISTENERS,
            f"Others would be told to connect to {endpoint}, and {_UNROUTABLE} is an address for listening only. Set "
            f"{ADVERTISED_LISTENERS} to one that they can reach, or leave the host in {LISTENERS} empty.",
        )
    _validate_sockets(values)


def _validate_logs(values: ConfigValues) -> None:
    dirs = values.get_optional_list("log.dirs") or values.get_optional_list("log.dir")
    _require(bool(dirs), "log.dirs", "Nothing says where the data goes: set log.dirs to one or more directories.")
    assert dirs is not None
    cordoned = values.get_list("cordoned.log.dirs")
    if "*" in cordoned:
        _require(
            len(cordoned) == 1,
            "cordoned.log.dirs",
            "cordoned.log.dirs is * and has other entries: * means all directories already.",
        )
    else:
        missing = [path for path in cordoned if path not in dirs]
        _require(
            not missing,
            "cordoned.log.dirs",
            f"cordoned.log.dirs has directories that are not in log.dirs: {', '.join(missing)}.",
        )


def _validate_replication(values: ConfigValues) -> None:
    wait = values.get_int("replica.fetch.wait.max.ms")
    socket_timeout, lag = values.get_int("replica.socket.timeout.ms"), values.get_int("replica.lag.time.max.ms")
    _require(
        wait <= socket_timeout,
        "replica.socket.timeout.ms",
        f"replica.socket.timeout.ms ({socket_timeout}) must be at least replica.fetch.wait.max.ms ({wait}), or "
        "fetches time out for no reason.",
    )
    _require(
        wait <= lag,
        "replica.fetch.wait.max.ms",
        f"replica.fetch.wait.max.ms ({wait}) must be at most replica.lag.time.max.ms ({lag}), or replicas fall out of "
        "sync for no reason.",
    )
    heartbeat, session = values.get_int("broker.heartbeat.interval.ms"), values.get_int("broker.session.timeout.ms")
    if heartbeat > session / 2:
        logger.warning(
            "broker.heartbeat.interval.ms (%d) is more than half of broker.session.timeout.ms (%d): one lost heartbeat "
            "is enough to lose the broker's session.",
            heartbeat,
            session,
        )


def _validate_controller(
    values: ConfigValues,
    roles: Collection[ProcessRole],
    listeners: Listeners,
    node_id: int,
    voter_ids: Collection[int],
) -> None:
    if ProcessRole.BROKER not in roles:
        _require(
            not listeners.broker,
            LISTENERS,
            f"process.roles is just controller, so {LISTENERS} can only have listeners that are in "
            f"{CONTROLLER_LISTENER_NAMES}: remove {_names(listeners.broker)}.",
        )
        explicit = values.get_optional_str(INTER_BROKER_LISTENER_NAME)
        _require(
            explicit is None or explicit.upper() not in listeners.controller_names,
            INTER_BROKER_LISTENER_NAME,
            f"{INTER_BROKER_LISTENER_NAME} ({explicit}) is for brokers, and cannot be in {CONTROLLER_LISTENER_NAMES}.",
        )
    _require(
        not voter_ids or node_id in voter_ids,
        VOTERS,
        f"This node is a controller, so its node.id {node_id} must be among {VOTERS}, which has "
        f"{', '.join(map(str, sorted(voter_ids)))}.",
    )
    _require(
        bool(listeners.advertised_controller),
        CONTROLLER_LISTENER_NAMES,
        f"This node is a controller, and none of {LISTENERS} is in {CONTROLLER_LISTENER_NAMES}: add one, for example "
        "CONTROLLER://127.0.0.1:9093.",
    )
    present = {endpoint.listener_name for endpoint in listeners.controller}
    missing = [name for name in listeners.controller_names if name not in present]
    _require(
        not missing,
        CONTROLLER_LISTENER_NAMES,
        f"This node is a controller, so all of {CONTROLLER_LISTENER_NAMES} must be in {LISTENERS}: "
        f"{', '.join(missing)} is not.",
    )


def _validate_broker_only(values: ConfigValues, listeners: Listeners, node_id: int, voter_ids: Collection[int]) -> None:
    _require(
        node_id not in voter_ids,
        VOTERS,
        f"process.roles is just broker, so its node.id {node_id} cannot be among {VOTERS}: give it another.",
    )
    _require(
        not listeners.controller,
        CONTROLLER_LISTENER_NAMES,
        f"process.roles is just broker, so nothing in {CONTROLLER_LISTENER_NAMES} can be in {LISTENERS}: remove "
        f"{_names(listeners.controller)} from {LISTENERS}.",
    )
    for name in listeners.controller_names:
        _require(
            name in listeners.protocols,
            PROTOCOL_MAP,
            f"Nothing says which protocol the controller's listener {name} has. Add {name}:PLAINTEXT to "
            f"{PROTOCOL_MAP}.",
        )
    _require(
        not values.get_bool("controller.quorum.auto.join.enable"),
        "controller.quorum.auto.join.enable",
        "controller.quorum.auto.join.enable is for controllers, and process.roles is just broker.",
    )
    if len(listeners.controller_names) > 1:
        logger.warning("Of %s, only the first is used: %s", CONTROLLER_LISTENER_NAMES, listeners.controller_names[0])
    for name in CONTROLLER_ONLY_CONFIGS:
        if values.is_set(name):
            logger.warning("%s does nothing on a node that is just a broker: set it on the controllers.", name)


def _validate_broker_listeners(listeners: Listeners) -> None:
    advertised = [endpoint.listener_name for endpoint in listeners.advertised_broker]
    _require(
        bool(advertised),
        ADVERTISED_LISTENERS,
        f"There is no listener for clients: everything in {ADVERTISED_LISTENERS} or {LISTENERS} is also in "
        f"{CONTROLLER_LISTENER_NAMES}.",
    )
    _require(
        listeners.inter_broker_name in advertised,
        INTER_BROKER_LISTENER_NAME,
        f"Brokers would use the listener {listeners.inter_broker_name} among themselves, and there is none of that "
        f"name. Set {INTER_BROKER_LISTENER_NAME} to one of {', '.join(advertised)}.",
    )
    opened = {endpoint.listener_name for endpoint in listeners.all}
    closed = [name for name in advertised if name not in opened]
    _require(
        not closed,
        ADVERTISED_LISTENERS,
        f"Clients would be told of {', '.join(closed)}, which is not in {LISTENERS}: remove it from "
        f"{ADVERTISED_LISTENERS}, or add it to {LISTENERS}, which has {', '.join(sorted(opened))}.",
    )


def _validate_sockets(values: ConfigValues) -> None:
    queued, largest = values.get_int("queued.max.request.bytes"), values.get_int("socket.request.max.bytes")
    _require(
        queued <= 0 or queued >= largest,
        "queued.max.request.bytes",
        f"queued.max.request.bytes ({queued}) must be at least socket.request.max.bytes ({largest}), or a request of "
        "that size could never be read.",
    )
    _require(
        values.get_int("max.connections.per.ip") > 0 or bool(values.get_str("max.connections.per.ip.overrides")),
        "max.connections.per.ip",
        "max.connections.per.ip is 0, so nobody could connect: set max.connections.per.ip.overrides for those who may.",
    )
    delay, idle = values.get_int("connection.failed.authentication.delay.ms"), values.get_int("connections.max.idle.ms")
    _require(
        idle < 0 or delay < idle,
        "connection.failed.authentication.delay.ms",
        f"connection.failed.authentication.delay.ms ({delay}) must be less than connections.max.idle.ms ({idle}), or "
        "connections are closed before they are answered.",
    )


def parse_roles(names: Iterable[str]) -> frozenset[ProcessRole]:
    return frozenset(map(ProcessRole, names))
