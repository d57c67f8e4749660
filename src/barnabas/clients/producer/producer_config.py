"""The settings of a producer: definitions, validation, and the rules between them."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from barnabas.clients.common.client_config import (
    HIGH,
    LOW,
    MEDIUM,
    client_properties,
    define_common,
    define_security,
    refuse_unknown,
)
from barnabas.common.config_def import (
    CaseInsensitiveValidString,
    CompositeValidator,
    ConfigDef,
    ConfigError,
    ConfigValues,
    LambdaValidator,
    NonEmptyString,
    Range,
    Type,
    ValidList,
    ValidString,
)
from barnabas.records.batch import CompressionType

log = logging.getLogger(__name__)

MAX_IN_FLIGHT_REQUESTS_PER_CONNECTION_FOR_IDEMPOTENCE: Final = 5
"""The number of batches per partition by which a broker recognises duplicates of a producer."""

TABLE_BATCH_BYTES: Final = 1_000_000
"""The size of a table's batches if none is set. ``batch.size`` is small because records have to arrive to fill a batch;
the rows of a table are all there, and the cost of a batch hardly depends on its size. Every broker version accepts
batches of this size by default."""

_MAX_INT32: Final = 2**31 - 1
_client_ids = itertools.count(1)


def _gzip_level(name: str, value: object) -> None:
    if value != -1:
        Range.between(1, 9).ensure_valid(name, value)


def _definition() -> ConfigDef:
    at_least_0 = Range.at_least(0)
    distinct = ValidList.any_non_duplicate_values(empty_allowed=True, null_allowed=False)
    definition = define_common(ConfigDef())
    define = definition.define
    define(
        "buffer.memory",
        Type.LONG,
        33_554_432,
        at_least_0,
        HIGH,
        "The maximum number of bytes of records that wait to be sent.",
    )
    define(
        "buffer.memory.allocation.strategy",
        Type.STRING,
        "full",
        CaseInsensitiveValidString.of("FULL", "INCREMENTAL"),
        MEDIUM,
        "Whether a batch allocates its memory at once or as it grows.",
        internal=True,
    )
    define(
        "retries",
        Type.INT,
        _MAX_INT32,
        Range.between(0, _MAX_INT32),
        HIGH,
        "How many times a failed batch is sent again.",
    )
    define(
        "acks",
        Type.STRING,
        "all",
        ValidString.of("all", "-1", "0", "1"),
        LOW,
        "Which replicas must have a record before the broker responds.",
    )
    define(
        "compression.type",
        Type.STRING,
        "none",
        ValidString.of(*(codec.codec_name for codec in CompressionType)),
        HIGH,
        "The compression codec of batches.",
    )
    define(
        "compression.gzip.level",
        Type.INT,
        -1,
        LambdaValidator(_gzip_level, "[1,...,9] or -1"),
        MEDIUM,
        "The compression level of gzip.",
    )
    define("compression.lz4.level", Type.INT, 9, Range.between(1, 17), MEDIUM, "The compression level of lz4.")
    define("compression.zstd.level", Type.INT, 3, Range.between(-131_072, 22), MEDIUM, "The compression level of zstd.")
    define(
        "batch.size", Type.INT, 16_384, at_least_0, MEDIUM, "The size in bytes at which a batch is ready to be sent."
    )
    define(
        "batch.max.size",
        Type.INT,
        262_144,
        at_least_0,
        MEDIUM,
        "The maximum size of a batch that waits for a connection. Not set: batch.size, if that is set.",
    )
    define(
        "partitioner.adaptive.partitioning.enable",
        Type.BOOLEAN,
        True,
        None,
        LOW,
        "Send more records to faster brokers.",
    )
    define(
        "partitioner.availability.timeout.ms",
        Type.LONG,
        0,
        at_least_0,
        LOW,
        "Avoid brokers that do not accept batches for this long; 0 disables it.",
    )
    define("partitioner.ignore.keys", Type.BOOLEAN, False, None, MEDIUM, "Do not use keys to choose partitions.")
    define("partitioner.rack.aware", Type.BOOLEAN, False, None, LOW, "Prefer leaders in the rack of client.rack.")
    define("linger.ms", Type.LONG, 5, at_least_0, MEDIUM, "How long a batch waits for more records.")
    define(
        "delivery.timeout.ms",
        Type.INT,
        120_000,
        at_least_0,
        MEDIUM,
        "How long a record may take until it succeeds or fails.",
    )
    define(
        "max.request.size", Type.INT, 1_048_576, at_least_0, MEDIUM, "The maximum size of a record and of a request."
    )
    define("max.block.ms", Type.LONG, 60_000, at_least_0, MEDIUM, "How long send() may block.")
    define(
        "metadata.max.idle.ms",
        Type.LONG,
        300_000,
        Range.at_least(5_000),
        LOW,
        "How long the metadata of an unused topic is kept.",
    )
    define(
        "max.in.flight.requests.per.connection",
        Type.INT,
        5,
        Range.at_least(1),
        LOW,
        "The maximum number of unacknowledged requests per connection.",
    )
    define("key.serializer", Type.CLASS, None, None, HIGH, "The serializer of keys. Not set: keys are bytes.")
    define("value.serializer", Type.CLASS, None, None, HIGH, "The serializer of values. Not set: values are bytes.")
    define(
        "partitioner.class",
        Type.CLASS,
        None,
        None,
        MEDIUM,
        "The class that chooses partitions. Not set: the built-in partitioner.",
    )
    define(
        "interceptor.classes", Type.LIST, (), distinct, LOW, "Interceptors that process records before they are sent."
    )
    define(
        "enable.idempotence",
        Type.BOOLEAN,
        True,
        None,
        LOW,
        "Write each record exactly once and in order, despite retries.",
    )
    define(
        "transaction.timeout.ms",
        Type.INT,
        60_000,
        None,
        LOW,
        "How long a transaction may be open before the broker aborts it.",
    )
    define(
        "transactional.id",
        Type.STRING,
        None,
        CompositeValidator(NonEmptyString()),
        LOW,
        "The ID of this producer across restarts. It enables transactions.",
    )
    define("transaction.two.phase.commit.enable", Type.BOOLEAN, False, None, LOW, "Two-phase commit (KIP-939).")
    return define_security(definition)


CONFIG: Final = _definition()
"""All settings that a producer has."""


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """The validated settings of a producer, and the values derived from them.

    **Idempotence** is on by default, and needs ``acks=all``, retries, and at most five requests in flight. Weaker acks
    or no retries turn it off, unless ``enable.idempotence=true`` is set explicitly: that combination is rejected
    (KIP-679).

    **Three time limits** depend on each other. A batch may linger, and then an attempt may take the time of a request,
    so ``delivery.timeout.ms`` must not be less than ``linger.ms`` plus ``request.timeout.ms``. Its default is raised to
    that sum; a smaller value that was set is rejected.

    **Two batch sizes** (KIP-782). A batch of ``batch.size`` is ready to be sent. While no request can be sent, it takes
    more records, up to ``batch.max.size``. If only ``batch.size`` is set, batches do not grow beyond it, as in Kafka's
    producer. Batches of a table are larger, unless one of the two is set.
    """

    bootstrap_servers: tuple[str, ...]
    client_id: str
    client_rack: str
    acks: int
    retries: int
    linger_ms: int
    batch_size: int
    batch_max_size: int
    buffer_memory: int
    compression: CompressionType
    compression_level: int | None
    delivery_timeout_ms: int
    request_timeout_ms: int
    max_block_ms: int
    max_request_size: int
    max_in_flight: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int
    metadata_max_idle_ms: int
    enable_idempotence: bool
    transactional_id: str | None
    transaction_timeout_ms: int
    two_phase_commit: bool
    partitioner_ignore_keys: bool
    adaptive_partitioning: bool
    partition_availability_timeout_ms: int
    rack_aware: bool
    values: ConfigValues
    """Every setting, by Kafka's name."""

    @classmethod
    def of(cls, config: Mapping[str, object] | None = None, **keywords: object) -> ProducerConfig:
        """From a mapping with Kafka's names, from keywords, or from both."""
        refuse_unknown(keywords, CONFIG)
        return cls.from_properties(client_properties(config, keywords))

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> ProducerConfig:
        """Parses settings under Kafka's names, and checks that they fit each other."""
        given = {name: _plain(name, value) for name, value in properties.items()}
        values = CONFIG.parse(given)
        acks = -1 if values.get_str("acks") == "all" else int(values.get_str("acks"))
        idempotent = _idempotence(values, acks)
        transactional_id = values.get_optional_str("transactional.id")
        if transactional_id is not None and not idempotent:
            raise ConfigError(
                "Cannot set a transactional.id without also enabling idempotence.", name="transactional.id"
            )
        if values.get_bool("transaction.two.phase.commit.enable") and "transaction.timeout.ms" in given:
            raise ConfigError(
                "Cannot set transaction.timeout.ms together with transaction.two.phase.commit.enable: a transaction "
                "that another system decides about has no timeout.",
                name="transaction.timeout.ms",
            )
        # With 0 no record would fit into a batch. As in Kafka, 0 means batches of one record.
        batch_size = max(1, values.get_int("batch.size"))
        linger_ms = min(values.get_int("linger.ms"), _MAX_INT32)
        compression = CompressionType.for_name(values.get_str("compression.type"))
        level_name = f"compression.{compression.codec_name}.level"
        return cls(
            bootstrap_servers=values.get_list("bootstrap.servers"),
            client_id=values.get_str("client.id") or _default_client_id(transactional_id),
            client_rack=values.get_str("client.rack"),
            acks=acks,
            retries=values.get_int("retries"),
            linger_ms=linger_ms,
            batch_size=batch_size,
            batch_max_size=_batch_max_size(values, batch_size),
            buffer_memory=values.get_int("buffer.memory"),
            compression=compression,
            compression_level=values.get_int(level_name) if level_name in values else None,
            delivery_timeout_ms=_delivery_timeout_ms(values, linger_ms),
            request_timeout_ms=values.get_int("request.timeout.ms"),
            max_block_ms=values.get_int("max.block.ms"),
            max_request_size=values.get_int("max.request.size"),
            max_in_flight=values.get_int("max.in.flight.requests.per.connection"),
            retry_backoff_ms=values.get_int("retry.backoff.ms"),
            retry_backoff_max_ms=values.get_int("retry.backoff.max.ms"),
            metadata_max_age_ms=values.get_int("metadata.max.age.ms"),
            metadata_max_idle_ms=values.get_int("metadata.max.idle.ms"),
            enable_idempotence=idempotent,
            transactional_id=transactional_id,
            transaction_timeout_ms=values.get_int("transaction.timeout.ms"),
            two_phase_commit=values.get_bool("transaction.two.phase.commit.enable"),
            partitioner_ignore_keys=values.get_bool("partitioner.ignore.keys"),
            adaptive_partitioning=values.get_bool("partitioner.adaptive.partitioning.enable"),
            partition_availability_timeout_ms=values.get_int("partitioner.availability.timeout.ms"),
            rack_aware=values.get_bool("partitioner.rack.aware"),
            values=values,
        )

    @property
    def table_batch_size(self) -> int:
        """How large ``send_table`` makes its batches, before compression."""
        size = self.batch_max_size
        if not self.values.is_set("batch.size") and not self.values.is_set("batch.max.size"):
            size = max(size, TABLE_BATCH_BYTES)
        return min(size, self.max_request_size)

    @property
    def send_buffer_bytes(self) -> int:
        """The socket's send buffer size; -1: the system's default.

        Setting Kafka's default would fix the buffer at that size: a batch of a megabyte would be sent in six pieces,
        each with a wait at both ends. The system's buffer grows with the traffic.
        """
        return self.values.get_int("send.buffer.bytes") if self.values.is_set("send.buffer.bytes") else -1

    @property
    def guarantee_message_order(self) -> bool:
        """Whether a partition is muted while it has a batch in flight, because only one request may be in flight."""
        return self.max_in_flight == 1


def _plain(name: str, value: object) -> Any:
    """Converts a sequence to a tuple, and a number to text where Kafka has text (``acks=1``)."""
    if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping | type):
        return tuple(value)
    return str(value) if name == "acks" and type(value) is int else value


def _default_client_id(transactional_id: str | None) -> str:
    return f"producer-{next(_client_ids) if transactional_id is None else transactional_id}"


def _idempotence(values: ConfigValues, acks: int) -> bool:
    if not values.get_bool("enable.idempotence"):
        return False
    asked_for = values.is_set("enable.idempotence")
    enabled = True
    if values.get_int("retries") == 0:
        if asked_for:
            raise ConfigError("Must set retries to non-zero when using the idempotent producer.", name="retries")
        log.info("Idempotence will be disabled because retries is set to 0.")
        enabled = False
    if acks != -1:
        if asked_for:
            raise ConfigError(
                "Must set acks to all in order to use the idempotent producer. Otherwise we cannot guarantee "
                "idempotence.",
                name="acks",
            )
        log.info("Idempotence will be disabled because acks is set to %d, not set to 'all'.", acks)
        enabled = False
    name = "max.in.flight.requests.per.connection"
    if enabled and values.get_int(name) > MAX_IN_FLIGHT_REQUESTS_PER_CONNECTION_FOR_IDEMPOTENCE:
        raise ConfigError(
            f"Must set {name} to at most {MAX_IN_FLIGHT_REQUESTS_PER_CONNECTION_FOR_IDEMPOTENCE} when using the "
            f"idempotent producer, but was {values.get_int(name)}.",
            name=name,
        )
    return enabled


def _batch_max_size(values: ConfigValues, batch_size: int) -> int:
    name = "batch.max.size"
    if not values.is_set(name) and values.is_set("batch.size"):
        return batch_size
    largest = values.get_int(name)
    if values.is_set(name) and largest < batch_size:
        raise ConfigError(f"{name} should be equal to or larger than batch.size.", name=name)
    return max(min(largest, values.get_int("max.request.size")), batch_size)


def _delivery_timeout_ms(values: ConfigValues, linger_ms: int) -> int:
    timeout_ms = values.get_int("delivery.timeout.ms")
    least_ms = min(linger_ms + values.get_int("request.timeout.ms"), _MAX_INT32)
    if timeout_ms >= least_ms:
        return timeout_ms
    if values.is_set("delivery.timeout.ms"):
        raise ConfigError(
            "delivery.timeout.ms should be equal to or larger than linger.ms + request.timeout.ms.",
            name="delivery.timeout.ms",
        )
    log.warning(
        "delivery.timeout.ms should be equal to or larger than linger.ms + request.timeout.ms. Setting it to %d.",
        least_ms,
    )
    return least_ms
