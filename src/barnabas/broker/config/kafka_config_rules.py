"""Rules about several settings of a node, which no single definition can state.

The rules and their order are Kafka's. The messages say what to do.
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
from barnabas.network.server.endpoint import Endpoint
from barnabas.raft.config import BOOTSTRAP_SERVERS, VOTERS

logger = logging.getLogger(__name__)

_UNROUTABLE: Final = "0.0.0.0"  # noqa: S104 - rejected here

CONTROLLER_ONLY_CONFIGS: Final = (
    "num.partitions",
    "default.replication.factor",
    "create.topic.policy.class.name",
    "alter.config.policy.class.name",
)
"""Settings that only the controller uses; they have no effect on another node."""


class ProcessRole(StrEnum):
    """A role of a node."""

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
    """Raises `ConfigError` for the first rule that is violated."""
    node_id, broker_id = values.get_int("node.id"), values.get_int("broker.id")
    _require(
        node_id == broker_id,
        "node.id",
        f"node.id ({node_id}) and broker.id ({broker_id}) must be equal: remove broker.id.",
    )
    _validate_logs(values)
    _validate_replication(values)
    for assignor in values.get_list("group.consumer.assignors"):
        assignor_name(assignor)  # fails now instead of at the first FindCoordinator
    _require(
        bool(voter_ids) or bool(values.get_list(BOOTSTRAP_SERVERS)),
        VOTERS,
        f"The controllers' addresses are missing: set {VOTERS} (id@host:port) or {BOOTSTRAP_SERVERS} (host:port).",
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
            f"{endpoint} cannot be advertised, because {_UNROUTABLE} is an address for listening only. Set "
            f"{ADVERTISED_LISTENERS} to a reachable address, or leave the host in {LISTENERS} empty.",
        )
    _validate_sockets(values)


def _validate_logs(values: ConfigValues) -> None:
    dirs = values.get_optional_list("log.dirs") or values.get_optional_list("log.dir")
    _require(bool(dirs), "log.dirs", "The log directories are missing: set log.dirs to one or more directories.")
    assert dirs is not None
    cordoned = values.get_list("cordoned.log.dirs")
    if "*" in cordoned:
        _require(
            len(cordoned) == 1,
            "cordoned.log.dirs",
            "cordoned.log.dirs must not have other entries besides *, which already means all directories.",
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
        f"replica.socket.timeout.ms ({socket_timeout}) must be at least replica.fetch.wait.max.ms ({wait}); otherwise "
        "fetches time out needlessly.",
    )
    _require(
        wait <= lag,
        "replica.fetch.wait.max.ms",
        f"replica.fetch.wait.max.ms ({wait}) must be at most replica.lag.time.max.ms ({lag}); otherwise followers of "
        "idle partitions leave the ISR.",
    )
    heartbeat, session = values.get_int("broker.heartbeat.interval.ms"), values.get_int("broker.session.timeout.ms")
    if heartbeat > session / 2:
        logger.warning(
            "broker.heartbeat.interval.ms (%d) is more than half of broker.session.timeout.ms (%d): a single lost "
            "heartbeat fences the broker.",
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
            f"process.roles is controller only, so {LISTENERS} may only have listeners that are in "
            f"{CONTROLLER_LISTENER_NAMES}: remove {_names(listeners.broker)}.",
        )
        explicit = values.get_optional_str(INTER_BROKER_LISTENER_NAME)
        _require(
            explicit is None or explicit.upper() not in listeners.controller_names,
            INTER_BROKER_LISTENER_NAME,
            f"{INTER_BROKER_LISTENER_NAME} ({explicit}) is for brokers and must not be in {CONTROLLER_LISTENER_NAMES}.",
        )
    _require(
        not voter_ids or node_id in voter_ids,
        VOTERS,
        f"This node is a controller, so its node.id {node_id} must be in {VOTERS}, which has "
        f"{', '.join(map(str, sorted(voter_ids)))}.",
    )
    _require(
        bool(listeners.advertised_controller),
        CONTROLLER_LISTENER_NAMES,
        f"This node is a controller, but none of {LISTENERS} is in {CONTROLLER_LISTENER_NAMES}: add one, for example "
        "CONTROLLER://127.0.0.1:9093.",
    )
    present = {endpoint.listener_name for endpoint in listeners.controller}
    missing = [name for name in listeners.controller_names if name not in present]
    _require(
        not missing,
        CONTROLLER_LISTENER_NAMES,
        f"This node is a controller, so {LISTENERS} must have all of {CONTROLLER_LISTENER_NAMES}: "
        f"add {', '.join(missing)}.",
    )


def _validate_broker_only(values: ConfigValues, listeners: Listeners, node_id: int, voter_ids: Collection[int]) -> None:
    _require(
        node_id not in voter_ids,
        VOTERS,
        f"process.roles is broker only, so its node.id {node_id} must not be in {VOTERS}: use another one.",
    )
    _require(
        not listeners.controller,
        CONTROLLER_LISTENER_NAMES,
        f"process.roles is broker only, so {LISTENERS} must not have any of {CONTROLLER_LISTENER_NAMES}: remove "
        f"{_names(listeners.controller)} from {LISTENERS}.",
    )
    for name in listeners.controller_names:
        _require(
            name in listeners.protocols,
            PROTOCOL_MAP,
            f"The security protocol of the controller's listener {name} is missing. Add {name}:PLAINTEXT to "
            f"{PROTOCOL_MAP}.",
        )
    _require(
        not values.get_bool("controller.quorum.auto.join.enable"),
        "controller.quorum.auto.join.enable",
        "controller.quorum.auto.join.enable requires the controller role, but process.roles is broker only.",
    )
    if len(listeners.controller_names) > 1:
        logger.warning("Using only the first of %s: %s", CONTROLLER_LISTENER_NAMES, listeners.controller_names[0])
    for name in CONTROLLER_ONLY_CONFIGS:
        if values.is_set(name):
            logger.warning("%s has no effect on a node that is only a broker: set it on the controllers.", name)


def _validate_broker_listeners(listeners: Listeners) -> None:
    advertised = [endpoint.listener_name for endpoint in listeners.advertised_broker]
    _require(
        bool(advertised),
        ADVERTISED_LISTENERS,
        f"No listener is left for clients: everything in {ADVERTISED_LISTENERS} or {LISTENERS} is also in "
        f"{CONTROLLER_LISTENER_NAMES}.",
    )
    _require(
        listeners.inter_broker_name in advertised,
        INTER_BROKER_LISTENER_NAME,
        f"The inter-broker listener {listeners.inter_broker_name} does not exist. "
        f"Set {INTER_BROKER_LISTENER_NAME} to one of {', '.join(advertised)}.",
    )
    opened = {endpoint.listener_name for endpoint in listeners.all}
    closed = [name for name in advertised if name not in opened]
    _require(
        not closed,
        ADVERTISED_LISTENERS,
        f"{', '.join(closed)} cannot be advertised, because it is not in {LISTENERS}: remove it from "
        f"{ADVERTISED_LISTENERS}, or add it to {LISTENERS}, which has {', '.join(sorted(opened))}.",
    )


def _validate_sockets(values: ConfigValues) -> None:
    queued, largest = values.get_int("queued.max.request.bytes"), values.get_int("socket.request.max.bytes")
    _require(
        queued <= 0 or queued >= largest,
        "queued.max.request.bytes",
        f"queued.max.request.bytes ({queued}) must be at least socket.request.max.bytes ({largest}); otherwise a "
        "request of that size could never be read.",
    )
    _require(
        values.get_int("max.connections.per.ip") > 0 or bool(values.get_str("max.connections.per.ip.overrides")),
        "max.connections.per.ip",
        "max.connections.per.ip is 0, so no client can connect: set max.connections.per.ip.overrides for some.",
    )
    delay, idle = values.get_int("connection.failed.authentication.delay.ms"), values.get_int("connections.max.idle.ms")
    _require(
        idle < 0 or delay < idle,
        "connection.failed.authentication.delay.ms",
        f"connection.failed.authentication.delay.ms ({delay}) must be less than connections.max.idle.ms ({idle}); "
        "otherwise connections are closed before the response is sent.",
    )


def parse_roles(names: Iterable[str]) -> frozenset[ProcessRole]:
    return frozenset(map(ProcessRole, names))
