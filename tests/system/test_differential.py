"""Random well-formed requests to our broker and to Apache Kafka 4.3.1: their responses must say the same.

Requests come from the declarations of the messages (`oracles.random_requests`), in every API and version that both
brokers advertise. They are sent in runs of some forty, each about topics and groups of its own. Responses are compared
without what is bound to differ: ids, times, addresses, words of errors, the order of entries
(`oracles.side_by_side`). A difference that is not in `KNOWN` fails the test, which then says by which seed and with the
fewest requests that show it.

A seed that failed is run again with ``DIFFERENTIAL_SEED=...``.
"""

from __future__ import annotations

import math
import os
import random
import re
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Final

import pytest
from benchmarks.waiting import until

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.message import Request, Struct
from barnabas.protocol.messages.alter_configs import AlterConfigsResource
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from clients.broker_process import BrokerProcess
from oracles.java import OracleUnavailableError
from oracles.kafka_server import KafkaServer, ensure_available
from oracles.random_requests import NODE_ID, random_request
from oracles.side_by_side import (
    CLOSED,
    READS,
    SILENT,
    Connection,
    Difference,
    Run,
    Step,
    advertised,
    all_versions,
    as_text,
    minimise,
)

pytestmark = pytest.mark.java

REQUESTS_OF_A_RUN: Final = 40
SETTINGS: Final = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "super.users": "User:ANONYMOUS",
    "max.incremental.fetch.session.cache.slots": "100000",
}


def anything(_value: Any) -> bool:
    return True


@dataclass(frozen=True)
class Known:
    """A difference that stays, and why. docs/deviations.md has the same reasons."""

    apis: tuple[ApiKey, ...]
    why: str
    path: str = ".*"
    when: Callable[[Any], bool] = anything
    """What the request has to look like."""
    ours: Callable[[Any], bool] = anything
    apache: Callable[[Any], bool] = anything
    is_sent: bool = True
    """False for what Kafka does not respond to, which takes long to find out, or what would change later responses."""

    def covers(self, difference: Difference, request: Struct) -> bool:
        return (
            difference.api in self.apis
            and re.fullmatch(self.path, difference.path) is not None
            and self.ours(difference.ours)
            and self.apache(difference.apache)
            and self.when(request)
        )


def has(request: Any, name: str, matches: Callable[[Any], bool]) -> bool:
    """Whether any field of that name, however deep, has such a value."""
    match request:
        case Struct():
            return any(
                (one.name == name and matches(getattr(request, one.name)))
                or has(getattr(request, one.name), name, matches)
                for one in request.fields
            )
        case list():
            return any((name == "" and matches(one)) or has(one, name, matches) for one in request)
    return False


def negative(*names: str) -> Callable[[Any], bool]:
    return lambda request: any(has(request, name, lambda value: value < 0) for name in names)


def twice(*names: str) -> Callable[[Any], bool]:
    """Whether one of these lists has two entries that mean the same thing."""

    def repeats(values: Any) -> bool:
        keys = [_identity(value) for value in values or ()]
        return any(key in keys[:index] for index, key in enumerate(keys))

    return lambda request: any(has(request, name, repeats) for name in names)


def _identity(value: Any) -> Any:
    """What an entry is known by: its fields of one value each, up to the first that says what to do with it."""
    if not isinstance(value, Struct):
        return value
    if isinstance(value, AlterConfigsResource):
        # All types that Kafka does not know are one.
        return value.resource_type if value.resource_type in {2, 4, 8, 16, 32} else 0, value.resource_name
    known_by = ("transactional_id", "entity_type", "name")
    return [getattr(value, name) for name in known_by if any(one.name == name for one in value.fields)]


def is_nobody(value: Any) -> bool:
    return value in (CLOSED, SILENT)


def is_code(*codes: int) -> Callable[[Any], bool]:
    return lambda value: value in codes


ACL_NUMBERS: Final[dict[str, Container[int]]] = {
    "resource_type": range(2, 8),
    "resource_pattern_type": (3, 4),
    "resource_type_filter": range(1, 8),
    "pattern_type_filter": range(1, 5),
    "operation": range(1, 16),
    "permission_type": range(1, 4),
}
"""The numbers that mean something, by the field of a request that they are in."""


def has_unknown_acl_numbers(request: Any) -> bool:
    def unknown_in(known: Container[int]) -> Callable[[Any], bool]:
        return lambda value: value not in known

    return any(has(request, name, unknown_in(known)) for name, known in ACL_NUMBERS.items())


ACL_APIS: Final = (ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS)

KNOWN: Final = (
    Known(
        (ApiKey.DESCRIBE_TOPIC_PARTITIONS,),
        "among all topics are internal ones, which are not the same",
        path=r"next_cursor.*|topics.*",
        when=lambda request: not request.topics,
    ),
    Known(
        (ApiKey.DESCRIBE_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS),
        "names of loggers are Python's",
        when=lambda request: has(request, "resource_type", is_code(8)),
    ),
    Known(
        (ApiKey.API_VERSIONS,),
        "APIs, versions and features of the two brokers are not the same",
        path=r"api_keys.*|supported_features.*|finalized_features.*",
    ),
    Known(
        (ApiKey.CREATE_DELEGATION_TOKEN,),
        "an owner without a type is INVALID_REQUEST; Kafka fails with an internal error",
        when=lambda request: request.owner_principal_type is None and bool(request.owner_principal_name),
        path="error_code",
        ours=is_code(42),
        apache=is_code(-1),
    ),
    Known(
        (ApiKey.CREATE_ACLS,),
        "an ACL for any operation or permission is INVALID_REQUEST; Kafka fails with an internal error",
        when=lambda request: has(request, "operation", is_code(1)) or has(request, "permission_type", is_code(1)),
        ours=is_code(42),
        apache=is_code(-1),
    ),
    Known(
        ACL_APIS,
        "unknown numbers in ACLs are INVALID_REQUEST; Kafka closes the connection or finds nothing",
        when=has_unknown_acl_numbers,
    ),
    Known(
        (ApiKey.FETCH,),
        "a negative number of bytes to fetch is INVALID_REQUEST; Kafka takes it for 0, or fails with an internal error",
        when=negative("max_bytes", "partition_max_bytes"),
    ),
    Known(
        (ApiKey.FETCH, ApiKey.LIST_OFFSETS),
        "an unknown isolation level is INVALID_REQUEST; Kafka fails with an internal error",
        when=lambda request: request.isolation_level not in {0, 1},
    ),
    Known(
        (ApiKey.INCREMENTAL_ALTER_CONFIGS,),
        "an unknown operation is INVALID_REQUEST; Kafka fails with an internal error",
        when=lambda request: has(request, "config_operation", lambda value: not 0 <= value <= 3),
    ),
    Known(
        (ApiKey.ALTER_CONFIGS,),
        "a resource named twice is INVALID_REQUEST; Kafka does not respond",
        when=twice("resources"),
        apache=is_nobody,
        is_sent=False,
    ),
    Known(
        (ApiKey.ADD_PARTITIONS_TO_TXN,),
        "without transactions the response is empty; Kafka does not respond",
        when=lambda request: not request.transactions,
        apache=is_nobody,
        is_sent=False,
    ),
    Known(
        (ApiKey.ADD_PARTITIONS_TO_TXN,),
        "a transactional id named twice is INVALID_REQUEST; Kafka handles both entries, in any order",
        when=twice("transactions"),
    ),
    Known(
        (ApiKey.ALTER_CLIENT_QUOTAS,),
        "an entity with two users, clients or addresses is INVALID_REQUEST; Kafka takes the last",
        when=twice("entity"),
        is_sent=False,  # an address that other runs ask for would have it from then on
    ),
    Known(
        (ApiKey.ALTER_CLIENT_QUOTAS,),
        "a quota that is not a finite number is INVALID_REQUEST; Kafka stores it",
        when=lambda request: has(request, "value", lambda value: not math.isfinite(value)),
        is_sent=False,  # the default of all users would have it from then on
    ),
    Known(
        (ApiKey.WRITE_TXN_MARKERS,),
        "each marker is handled by itself; Kafka does not respond, or mixes them up, if a topic is there twice",
        when=lambda request: len(request.markers) > 1 or twice("topics", "partition_indexes")(request),
        is_sent=False,
    ),
    Known(
        (ApiKey.WRITE_TXN_MARKERS,),
        "a producer id or epoch below 0 is refused as such; Kafka fails with an internal error at -1",
        when=negative("producer_id", "producer_epoch"),
        is_sent=False,
    ),
    Known(
        (ApiKey.HEARTBEAT, ApiKey.SYNC_GROUP, ApiKey.JOIN_GROUP, ApiKey.OFFSET_COMMIT, ApiKey.LEAVE_GROUP),
        "a member that does not sync is removed after its rebalance time-out, on one side before the other",
        path=r".*error_code",
        ours=is_code(0, 22, 25, 27),
        apache=is_code(0, 22, 25, 27),
    ),
    Known(
        (ApiKey.FETCH,),
        "an id of zeros is no topic's; Kafka fails with an internal error",
        when=lambda request: has(request, "topic_id", lambda value: not any(value)),
        apache=is_code(-1),
    ),
    Known(
        (ApiKey.METADATA,),
        "a topic without a name and an id is left out; Kafka fails with an internal error",
        when=lambda request: has(request, "name", lambda value: value is None),
    ),
    Known(
        (ApiKey.ALTER_USER_SCRAM_CREDENTIALS,),
        "an empty password is UNACCEPTABLE_CREDENTIAL; Kafka fails with an internal error",
        when=lambda request: has(request, "salted_password", lambda value: not value),
        ours=is_code(93),
        apache=is_code(-1),
    ),
    Known(
        (ApiKey.JOIN_GROUP,),
        "a rebalance time-out below 0 is none, and the session time-out counts; Kafka removes the member at once",
        when=lambda request: request.rebalance_timeout_ms < 0,
        is_sent=False,  # the difference is in later responses
    ),
    Known(
        (ApiKey.JOIN_GROUP,),
        "the id of a member without an instance id cannot get one; Kafka fails with an internal error",
        when=lambda request: request.group_instance_id is not None,
        ours=is_code(25),
        apache=is_code(-1),
    ),
    Known(
        (ApiKey.PRODUCE,),
        "null records are INVALID_RECORD; Kafka closes the connection, or looks at other entries first",
        when=lambda request: has(request, "records", lambda value: value is None),
    ),
    Known(
        (ApiKey.DESCRIBE_TOPIC_PARTITIONS,),
        "an empty name is INVALID_TOPIC_EXCEPTION; Kafka fails with an internal error",
        when=lambda request: has(request, "name", lambda value: not value),
    ),
)


@dataclass
class Brokers:
    """One of each, with everything there that the first request for it would make."""

    ours: Connection
    apache: Connection
    numbers: Iterator[int]
    """For the tags of runs: each is used once."""

    def new_run(self) -> Run:
        run = Run(self.ours, self.apache, next(self.numbers), is_known)
        run.prepare()
        return run

    def warm_up(self) -> None:
        """Waits for the coordinators, whose topics are made now."""
        requests: list[Request] = [
            *(FindCoordinatorRequest(key="warm up", key_type=kind) for kind in (0, 1)),
            InitProducerIdRequest(transactional_id="warm up", transaction_timeout_ms=60_000),
            OffsetCommitRequest(
                group_id="warm up",
                topics=[OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition()])],
            ),
        ]
        for connection in (self.ours, self.apache):
            for request in requests:
                until(partial(self._is_served, connection, request), f"{request} at port {connection.port}", 60)

    @staticmethod
    def _is_served(connection: Connection, request: Request) -> bool:
        connection.send(request, 3)
        response: Any = connection.receive(request.api_key, 3)
        if isinstance(response, OffsetCommitResponse):
            response = response.topics[0].partitions[0]
        return response.error_code in {0, 3}


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    try:
        ensure_available()
    except OracleUnavailableError as reason:
        if os.environ.get("CI") == "true":
            pytest.fail(f"Apache Kafka is not available: {reason}")
        pytest.skip(f"Apache Kafka is not available: {reason}")
    settings: dict[str, Any] = {name.replace(".", "_"): value for name, value in SETTINGS.items()}
    settings["authorizer_class_name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    kafka = KafkaServer(tmp_path_factory.mktemp("kafka"), static_voters=True, **settings)
    own = {
        **SETTINGS,
        "node.id": str(NODE_ID),
        "authorizer.class.name": "barnabas.security.standard_authorizer.StandardAuthorizer",
    }
    kafka.format()
    with kafka, BrokerProcess(tmp_path_factory.mktemp("barnabas"), own) as barnabas:
        connections = Connection(barnabas.port), Connection(kafka.port)
        made = Brokers(*connections, count(1))
        made.warm_up()
        yield made
        for connection in connections:
            connection.close()


def is_known(difference: Difference, request: Struct) -> bool:
    return any(known.covers(difference, request) for known in KNOWN)


def unknown(differences: list[Difference], request: Struct) -> list[Difference]:
    return [one for one in differences if not is_known(one, request)]


def is_sent(request: Request) -> bool:
    return not any(request.api_key in known.apis and known.when(request) for known in KNOWN if not known.is_sent)


def explore(brokers: Brokers, seed: int, requests: int) -> None:
    """Sends so many random requests; fails at the first difference that nobody has accounted for."""
    chance = random.Random(seed)
    targets = all_versions(advertised(brokers.ours), advertised(brokers.apache))
    asked = 0
    while asked < requests:
        run = brokers.new_run()
        steps: list[Step] = []
        for number in range(1, REQUESTS_OF_A_RUN + 1):
            api, version = chance.choice(targets)
            step = Step(number, random_request(api, version, chance, run.ids), version)
            if not is_sent(step.request):
                continue
            steps.append(step)
            asked += 1
            found = run.ask(step)
            if new := unknown(found, step.request):
                run.clean_up()
                pytest.fail(report(brokers, seed, steps, new))
            if found and (api not in READS or api is ApiKey.FETCH):
                break  # from here on the brokers need not be in the same state; a refused Fetch keeps its session
        run.clean_up()


def report(brokers: Brokers, seed: int, steps: list[Step], found: list[Difference]) -> str:
    """What differs, and the fewest requests that show it."""

    def shows(fewer: list[Step]) -> bool:
        run = brokers.new_run()
        differences = [run.ask(step) for step in fewer][-1]
        run.clean_up()
        wanted = {(one.api, one.path) for one in found}
        return any((one.api, one.path) in wanted for one in unknown(differences, fewer[-1].request))

    fewest = minimise(steps, shows)
    differences = "\n".join(map(str, found))
    return f"seed {seed}: {differences}\nwith\n{as_text(fewest)}"


def seeds(fresh: int) -> list[int]:
    """The seed that was asked for, or new ones."""
    given = os.environ.get("DIFFERENTIAL_SEED")
    return [int(given)] if given else [random.SystemRandom().randrange(10**6) for _ in range(fresh)]


SEEDS: Final = seeds(10)
"""Chosen once, so that a second try of the test after a failure (``conftest.py``) sends the same requests."""


def test_random_requests(brokers: Brokers) -> None:
    explore(brokers, 1, 200)


@pytest.mark.nightly
def test_many_random_requests(brokers: Brokers, record_property: Callable[[str, object], None]) -> None:
    for seed in SEEDS:
        print(f"seed {seed}")
        explore(brokers, seed, 1_000)
    record_property("fuzz_cases", 1_000 * len(SEEDS))
