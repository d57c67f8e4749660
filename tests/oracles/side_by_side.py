"""The same requests to two brokers, and what differs between their responses.

`Run` is a sequence of requests against both, in names that no other run uses. A request is kept in terms of symbols
(see `random_requests`), so that a run can be repeated with some of its requests left out, until what is left is what it
takes to show a difference.
"""

from __future__ import annotations

import re
import select
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.framing import encode_request
from barnabas.protocol.message import Request, Struct
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.records.batch import iter_batches
from log_fixtures import NOW
from oracles.random_requests import TOPICS, Ids, is_symbol, symbol_for

SECONDS: Final = 30.0
"""How long a response may take; no request of the generator waits for longer than a second."""
SETTLE_SECONDS: Final = 30.0
"""How long a change may take until both brokers show it."""

CLOSED: Final = "closed the connection"
SILENT: Final = "did not respond"

OTHER_SETTINGS: Final = frozenset(
    {
        # Of Kafka 4.4, which is the line that we follow; the broker beside ours is 4.3.1.
        "errors.deadletterqueue.group.enable",
        "log.remote.copy.lag.bytes",
        "log.remote.copy.lag.ms",
        "max.decompressed.message.bytes",
        "remote.copy.lag.bytes",
        "remote.copy.lag.ms",
        # Of one node: addresses, directories, and what `barnabas start` sets.
        "advertised.listeners",
        "authorizer.class.name",
        "auto.create.topics.enable",
        "controller.quorum.append.linger.ms",
        "controller.quorum.voters",
        "listener.security.protocol.map",
        "listeners",
        "log.dir",
        "log.dirs",
        "num.network.threads",
        # Names of Java classes.
        "metric.reporters",
        "principal.builder.class",
        "sasl.oauthbearer.jwt.retriever.class",
        "sasl.oauthbearer.jwt.validator.class",
    }
)
"""Settings that the two brokers are not meant to have in common; docs/deviations.md has them."""

_LONG_AGO_MS: Final = NOW + 10**9
"""Later than all records of the generator."""

METADATA_LOG: Final = "__cluster_metadata"

_TAG: Final = re.compile(r"-e\d+z")
_BROKER_MEMBER: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}|[\w-]{22}")

_IGNORED: Final = frozenset(
    {
        "error_message",  # the words differ, the code is what a client acts on
        "throttle_time_ms",
        "cluster_id",
        "host",
        "port",
        "client_host",
        "listeners",
        "documentation",
        "total_bytes",
        "usable_bytes",
        "partition_size",
        "log_dir",
        "last_timestamp",
        "last_fetch_timestamp",
        "last_caught_up_timestamp",
        "transaction_start_time_ms",
        "start_timestamp",
        "log_append_time_ms",
        "replica_directory_id",
        "metadata_offset",
        "high_watermark_of_metadata",
        "leader_directory_id",
    }
)
_IDS: Final = {
    "topic_id": "topic_id",
    "member_id": "member_id",
    "leader": "member_id",
    "session_id": "session_id",
    "producer_id": "producer_id",
}
READS: Final = frozenset(
    {
        ApiKey.METADATA, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FETCH, ApiKey.FIND_COORDINATOR,
        ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_GROUPS, ApiKey.API_VERSIONS, ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.DESCRIBE_ACLS, ApiKey.DESCRIBE_CONFIGS, ApiKey.DESCRIBE_LOG_DIRS, ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.DESCRIBE_CLIENT_QUOTAS, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, ApiKey.DESCRIBE_QUORUM,
        ApiKey.DESCRIBE_CLUSTER, ApiKey.DESCRIBE_PRODUCERS, ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS,
        ApiKey.CONSUMER_GROUP_DESCRIBE, ApiKey.LIST_CONFIG_RESOURCES, ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    }
)  # fmt: skip
"""Requests that change nothing, so that a difference may be looked at again until it is gone or here to stay."""
_TRANSIENT: Final = frozenset({5, 6, 13, 14, 15, 16, 41, 51, 56, 60, 100})
"""Codes that mean "not yet": the coordinator loads, the previous transaction is being completed."""


class Connection:
    """One connection, opened again whenever the broker has closed it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._socket: socket.socket | None = None
        self._correlation_id = 0

    def send(self, request: Request, version: int) -> None:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS)
        self._correlation_id += 1
        with suppress(ConnectionError):  # seen again when the response is read
            self._socket.sendall(encode_request(request, version, self._correlation_id, "fuzz"))

    def receive(self, api: ApiKey, version: int) -> Struct | str:
        """The response, or in a word why there is none."""
        try:
            (size,) = struct.unpack(">i", self._read(4))
            frame = self._read(size)
        except TimeoutError:
            self.close()
            return SILENT
        except ConnectionError:
            self.close()
            return CLOSED
        assert struct.unpack_from(">i", frame)[0] == self._correlation_id
        if api is ApiKey.API_VERSIONS and frame[4:6] == b"\0\x23":
            version = 0  # an unsupported version is refused in version 0
        start = 5 if api.response_header_version(version) else 4
        return api.response.decode(frame[start:], version)

    def _read(self, size: int) -> bytes:
        assert self._socket is not None
        data = bytearray()
        while len(data) < size:
            if not select.select([self._socket], [], [], SECONDS)[0]:
                raise TimeoutError
            part = self._socket.recv(size - len(data))
            if not part:
                raise ConnectionResetError
            data += part
        return bytes(data)

    def close(self) -> None:
        opened, self._socket = self._socket, None
        if opened is not None:
            opened.close()


@dataclass(frozen=True)
class Difference:
    """One value of a response that is not the same."""

    api: ApiKey
    version: int
    path: str
    """From the response's top: ``topics[].partitions[].error_code``."""
    ours: Any
    apache: Any

    def __str__(self) -> str:
        return f"{self.api.title} v{self.version} {self.path}: {self.ours!r} here, {self.apache!r} in Apache Kafka"


@dataclass
class Step:
    """A request of a run; its number stays when steps before it are left out."""

    number: int
    request: Request
    version: int


@dataclass
class _Side:
    """What one broker calls the things that have symbols."""

    connection: Connection
    values: dict[Any, Any] = field(default_factory=dict)
    symbols: dict[Any, Any] = field(default_factory=dict)


class Run:
    """Requests to both brokers under one tag."""

    def __init__(
        self,
        ours: Connection,
        apache: Connection,
        number: int,
        is_known: Callable[[Difference, Request], bool] = lambda _difference, _request: False,
    ) -> None:
        self.tag = f"-e{number}z"
        self._is_known = is_known
        self.ids = Ids()
        self.sides = (_Side(ours), _Side(apache))
        self._step = 0
        self._bound = 0

    def prepare(self) -> None:
        """Makes the topics that the requests are about."""
        configs = [CreatableTopicConfig(name="retention.ms", value="-1")]
        topics = [
            CreatableTopic(name=name, num_partitions=2 - index, replication_factor=1, configs=configs)
            for index, name in enumerate(TOPICS)
        ]
        differences = self.ask(Step(0, CreateTopicsRequest(topics=topics, timeout_ms=30_000), 7))
        assert not differences, differences

    def clean_up(self) -> None:
        """Deletes them, so that a listing of all topics stays short."""
        topics = [DeleteTopicState(name=name) for name in (*TOPICS, "topic-c~", "absent~")]
        self._exchange(DeleteTopicsRequest(topics=topics, timeout_ms=30_000), 6)

    def ask(self, step: Step) -> list[Difference]:
        """Sends a request to both; what differs, also after both have had the time to get over it."""
        self._step, self._bound = step.number, 0
        api = step.request.api_key
        deadline = time.monotonic() + SETTLE_SECONDS
        responses = self._exchange(step.request, step.version)
        while True:
            found = [
                Difference(api, step.version, path, ours, apache)
                for path, ours, apache in self._compare("", *(form(one, self) for one in responses), learn=False)
            ]
            open_question = any(not self._is_known(one, step.request) for one in found)
            # What changes something is only repeated where it has changed nothing yet.
            again = [
                index
                for index, one in enumerate(responses)
                if open_question and (api in READS or has_code(one, _TRANSIENT))
            ]
            if not again or time.monotonic() > deadline:
                break
            for index, response in zip(again, self._exchange(step.request, step.version, *again), strict=True):
                responses[index] = response
        for _ in self._compare("", *(form(one, self) for one in responses), learn=True):
            pass
        changes = api not in READS and any(has_code(one, frozenset({0})) for one in responses)
        if changes or api is ApiKey.METADATA:  # which makes topics, unless it says that it does not want to
            found += self._settle(created_by(step, responses))
        return found

    def _settle(self, awaited: frozenset[str] = frozenset()) -> list[Difference]:
        """Waits until both brokers have the same topics, these among them, and serve their partitions."""
        deadline = time.monotonic() + SETTLE_SECONDS
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        while True:
            responses = self._exchange(request, 12)
            forms = [form(one, self) for one in responses]
            found = [
                Difference(ApiKey.METADATA, 12, path, ours, apache)
                for path, ours, apache in self._compare("", *forms, learn=True)
            ]
            if (
                not found
                and all(awaited <= names_in(one) for one in responses)
                and all(isinstance(one, dict) and self._are_served(one["topics"]) for one in forms)
            ):
                return []
            if time.monotonic() > deadline:
                return found

    def _are_served(self, topics: list[dict[str, Any]]) -> bool:
        """Whether no partition is unknown to its leader any more: metadata are there a little earlier."""
        wanted = [
            ListOffsetsTopic(
                name=topic["name"],
                partitions=[
                    ListOffsetsPartition(partition_index=one["partition_index"], timestamp=-1)
                    for one in topic["partitions"]
                ],
            )
            for topic in topics
        ]
        responses = self._exchange(ListOffsetsRequest(replica_id=-1, topics=wanted), 4)
        return not any(has_code(one, _TRANSIENT | {3}) for one in responses)

    def _exchange(self, request: Request, version: int, *which: int) -> list[Struct | str]:
        """Sends a request to both brokers, or to one; both work on it at the same time."""
        sides = [self.sides[index] for index in which or range(len(self.sides))]
        for side in sides:
            side.connection.send(self._concrete(request, side), version)
        return [side.connection.receive(request.api_key, version) for side in sides]

    def _concrete(self, value: Any, side: _Side) -> Any:
        """A request in the terms of one broker."""
        match value:
            case Struct():
                made = type(value)()
                for one in value.fields:
                    setattr(made, one.name, self._concrete(getattr(value, one.name), side))
                return made
            case list():
                return [self._concrete(one, side) for one in value]
            case str():
                return side.values.get(value, value).replace("~", self.tag)
            case bytes() | int() if is_symbol(value):
                return side.values.get(value, value)
        return value

    # -------------------------------------------------------------------------------------------- comparing

    def _compare(self, path: str, ours: Any, apache: Any, *, learn: bool) -> Iterator[tuple[str, Any, Any]]:
        match ours, apache:
            case dict(), dict():
                codes = [name for name in ours if name.endswith("error_code") and ours[name] != apache.get(name)]
                # With another code the rest of a struct is bound to differ, and says nothing more.
                for name in codes or ours:
                    yield from self._compare_field(path, name, ours[name], apache[name], learn=learn)
            case list(), list():
                ours, apache = self._sorted(ours, 0), self._sorted(apache, 1)
                if len(ours) != len(apache):
                    extra, missing = _left_over(ours, apache), _left_over(apache, ours)
                    yield f"{path}[]", extra, missing
                    ours = [one for one in ours if one not in extra]
                    apache = [one for one in apache if one not in missing]
                for one, other in zip(ours, apache, strict=False):
                    yield from self._compare(f"{path}[]", one, other, learn=learn)
            case _ if ours != apache:
                yield path, ours, apache

    def _compare_field(self, path: str, name: str, ours: Any, apache: Any, *, learn: bool) -> Iterator[Any]:
        inner = f"{path}.{name}" if path else name
        kind = _IDS.get(name)
        if kind is None or ours == apache or isinstance(ours, list) or not self._same_id(kind, ours, apache, learn):
            yield from self._compare(inner, ours, apache, learn=learn)
        if learn and name in {"generation_id", "member_epoch"} and ours == apache and ours not in self.ids.epochs:
            self.ids.epochs.append(ours)

    def _same_id(self, kind: str, ours: Any, apache: Any, learn: bool) -> bool:
        """Whether both mean the same thing; an id that neither has used before gets a symbol."""
        here, there = self.sides
        symbols = here.symbols.get(ours), there.symbols.get(apache)
        if symbols[0] is not None or symbols[1] is not None:
            return symbols[0] == symbols[1]
        if type(ours) is not type(apache) or not _is_id(ours) or not _is_id(apache):
            return False
        if learn:
            symbol = symbol_for(kind, self._step * 100 + self._bound)
            self._bound += 1
            for side, value in ((here, ours), (there, apache)):
                side.values[symbol], side.symbols[value] = value, symbol
            getattr(self.ids, kind).append(symbol)
        return True

    def _sorted(self, values: list[Any], side: int) -> list[Any]:
        """In one order for both. Where Kafka's order means something, clients do not rely on it."""
        symbols = self.sides[side].symbols

        def key(value: Any) -> str:
            match value:
                case dict():
                    # Codes last: an entry has its place also where they differ.
                    named = [(name.endswith("error_code"), name, key(one)) for name, one in value.items()]
                    return str(sorted(named, key=itemgetter(0)))
                case list():
                    return str(sorted(map(key, value)))
            return str(symbols.get(value, "an id" if _is_id(value) and not isinstance(value, int) else value))

        return sorted(values, key=key)


def _left_over(values: list[Any], others: list[Any]) -> list[Any]:
    """The values that the other side has nothing like."""
    names = [_name(other) for other in others]
    return [value for value in values if _name(value) not in names]


def _name(value: Any) -> Any:
    """What an element of a list is known by: its first field."""
    return next(iter(value.values()), None) if isinstance(value, dict) else value


def _is_id(value: object) -> bool:
    match value:
        case str():
            return _BROKER_MEMBER.search(value) is not None
        case bytes():
            return len(value) == 16 and any(value)
        case int():
            return value > 0
    return False


def form(value: Any, run: Run) -> Any:
    """A response as dicts and lists, without what is bound to differ and without what other runs have left."""
    match value:
        case Struct():
            return {
                one.name: _records_form(held) if one.kind == "records" else form(held, run)
                for one in value.fields
                if one.name not in _IGNORED
                for held in [getattr(value, one.name)]
            }
        case list():
            return _merged([one for one in (form(one, run) for one in value) if not _of_another_run(one, run.tag)])
        case str():
            return value.replace(run.tag, "~")
        case memoryview() | bytearray():
            return bytes(value)
        case int() if value > _LONG_AGO_MS and value < 2 * _LONG_AGO_MS:
            return "a time"  # of a marker, which a broker has written
        case float() if value != value:  # noqa: PLR0124 - not a number
            return "NaN"
    return value


def _records_form(records: Any) -> Any:
    """Batches without their times, which are a broker's own in markers of transactions, and without checksums."""
    if not records:
        return records
    return [
        (
            batch.base_offset,
            batch.last_offset,
            batch.attributes,
            batch.partition_leader_epoch,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            None if batch.is_control_batch else bytes(batch.records_view),
        )
        for batch in iter_batches(bytes(records), allow_partial=True)
    ]


_PARTITIONS: Final = ("partitions", "partition_responses", "partition_result", "results_by_partition")


def _merged(values: list[Any]) -> list[Any]:
    """One entry for each topic that has partitions, and nothing twice.

    A request may name a topic twice, or without partitions. Whether the response has one entry or two for it, or none,
    says nothing; what it says about each partition does.
    """
    merged: list[Any] = []
    for value in values:
        inner = next((name for name in _PARTITIONS if isinstance(value, dict) and name in value), None)
        if inner is None:
            if value not in merged:
                merged.append(value)
            continue
        outside = {name: one for name, one in value.items() if name != inner}
        for before in merged:
            if outside == {name: one for name, one in before.items() if name != inner}:
                before[inner] += [one for one in value[inner] if one not in before[inner]]
                break
        else:
            merged.append(value)
    return [
        value
        for value in merged
        if not isinstance(value, dict)
        or value.get("error_code")
        or not any(value.get(name) == [] for name in _PARTITIONS)
    ]


def _of_another_run(value: Any, tag: str) -> bool:
    match value:
        case str():
            return any(found != tag for found in _TAG.findall(value))
        case dict():
            name = value.get("name", value.get("topic", value.get("resource_name")))
            if name in OTHER_SETTINGS or (isinstance(name, str) and name.startswith("barnabas.")):
                return True
            # Internal topics: each broker has its own, and what is in them is its own business.
            if isinstance(name, str) and name.startswith("__") and name != METADATA_LOG:
                return True
            return any(_of_another_run(one, tag) for one in value.values())
    return False


def created_by(step: Step, responses: Sequence[Struct | str]) -> frozenset[str]:
    """The topics that a Metadata request has the brokers create, after they have sent their responses."""
    request = step.request
    if not isinstance(request, MetadataRequest) or (step.version >= 4 and not request.allow_auto_topic_creation):
        return frozenset()
    return frozenset(
        topic.name
        for one in responses
        if isinstance(one, MetadataResponse)
        for topic in one.topics
        if topic.name and topic.error_code in {3, 5}
    )


def names_in(response: Struct | str) -> frozenset[str]:
    """The topics of a Metadata response."""
    topics = response.topics if isinstance(response, MetadataResponse) else []
    return frozenset(topic.name for topic in topics if topic.name)


def has_code(value: Any, codes: frozenset[int]) -> bool:
    """Whether any error code of a response is one of these."""
    match value:
        case Struct():
            return any(
                getattr(value, one.name) in codes
                if one.name.endswith("error_code")
                else has_code(getattr(value, one.name), codes)
                for one in value.fields
                if one.name.endswith("error_code") or one.kind in {"array", "struct"}
            )
        case list():
            return any(has_code(one, codes) for one in value)
    return False


def advertised(connection: Connection) -> Mapping[ApiKey, range]:
    """The versions of each API that a broker speaks."""
    connection.send(ApiVersionsRequest(client_software_name="fuzz", client_software_version="1"), 3)
    response: Any = connection.receive(ApiKey.API_VERSIONS, 3)
    known = {int(api): api for api in ApiKey}
    return {
        known[one.api_key]: range(one.min_version, one.max_version + 1)
        for one in response.api_keys
        if one.api_key in known
    }


def minimise(steps: list[Step], shows: Callable[[list[Step]], bool]) -> list[Step]:
    """The fewest steps, and the least in the last of them, with which the difference still shows."""
    last = steps[-1]
    if len(steps) > 1 and shows([last]):
        steps = [last]
    position = 0
    while position < len(steps) - 1:
        fewer = steps[:position] + steps[position + 1 :]
        if shows(fewer):
            steps = fewer
        else:
            position += 1
    changed = True
    while changed:
        changed = False
        for simpler in _simpler(steps[-1].request, steps[-1].version):
            candidate = [*steps[:-1], Step(steps[-1].number, simpler, steps[-1].version)]
            if shows(candidate):
                steps, changed = candidate, True
                break
    return steps


def _simpler(value: Any, version: int) -> Iterator[Any]:
    """The same message with one thing less in it: an element left out, or a field at its default."""
    for one in value.fields:
        if one.name == "acks" or (version not in one.versions and not one.is_tagged(version)):
            continue  # nobody responds to acks=0
        held = getattr(value, one.name)
        if isinstance(held, list):
            for index, element in enumerate(held):
                yield _with(value, one.name, held[:index] + held[index + 1 :])
                if isinstance(element, Struct):
                    for simpler in _simpler(element, version):
                        yield _with(value, one.name, [*held[:index], simpler, *held[index + 1 :]])
        elif isinstance(held, Struct):
            for simpler in _simpler(held, version):
                yield _with(value, one.name, simpler)
        elif held != (default := one.make_default()) and held == held:  # noqa: PLR0124 - NaN stays
            yield _with(value, one.name, default)


def _with(value: Struct, name: str, held: Any) -> Struct:
    made = type(value)()
    for one in value.fields:
        setattr(made, one.name, getattr(value, one.name))
    setattr(made, name, held)
    return made


def all_versions(*sides: Mapping[ApiKey, range]) -> list[tuple[ApiKey, int]]:
    """Every API and version that all of them speak."""
    first, *others = sides
    return [
        (api, version) for api, versions in first.items() for version in versions
        if version in api.versions and all(version in other.get(api, ()) for other in others)
    ]  # fmt: skip


def as_text(steps: Iterable[Step]) -> str:
    return "\n".join(f"  v{step.version} {step.request!r}" for step in steps)
