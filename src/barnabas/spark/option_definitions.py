"""The options of source and sink: names, defaults and meanings. docs/spark.md is made from them.

Most are those of Spark's own Kafka connector, with its names and meanings. Options below ``kafka.`` are settings of a
Kafka consumer or producer: see `barnabas.spark.client_settings` and `barnabas.spark.sink_settings`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from barnabas.common.config_def import ConfigError

PREFIX: Final = "kafka."

BATCH: Final = "batch"
STREAM: Final = "stream"
BOTH: Final = "both"


class Option(NamedTuple):
    """An option of source or sink."""

    name: str
    default: str
    help: str
    queries: str = BOTH
    """The kind of query that it applies to."""
    is_ours: bool = False
    """Whether the stock connector does not have it."""


SOURCE: Final = (
    Option("assign", "", 'The partitions to read, as JSON: `{"orders":[0,1]}`.'),
    Option("subscribe", "", "The topics to read, separated by commas. New partitions are read as well."),
    Option("subscribePattern", "", "A regular expression that matches the whole names of the topics to read."),
    Option(
        "startingTimestamp",
        "",
        "Where to start in all partitions: the first record that is not older, in milliseconds since 1970. Takes "
        "precedence over the other two.",
    ),
    Option(
        "startingOffsetsByTimestamp",
        "",
        'Where to start in each partition, as JSON: `{"orders":{"0":1700000000000}}`. Takes precedence over '
        "`startingOffsets`.",
    ),
    Option(
        "startingOffsets",
        "`latest`, for batches `earliest`",
        '`earliest`, `latest` (not for batches), or JSON: `{"orders":{"0":23,"1":-2}}`, where -2 is earliest and -1 '
        "latest. A stream with a checkpoint continues there instead, and reads new partitions from their beginning.",
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        "`error`",
        "If all records of a partition are older than the timestamp: `error` fails the query, `latest` starts at the "
        "end.",
    ),
    Option("endingTimestamp", "", "Where to end in all partitions, in milliseconds since 1970.", BATCH),
    Option("endingOffsetsByTimestamp", "", "Where to end in each partition, as JSON.", BATCH),
    Option("endingOffsets", "`latest`", "`latest`, or JSON as for `startingOffsets` without -2.", BATCH),
    Option(
        "failOnDataLoss",
        "`true`",
        "Whether the query fails if records or topics were deleted before it has read them. Otherwise it logs a "
        "warning and goes on.",
    ),
    Option("maxOffsetsPerTrigger", "", "The maximum number of records of a micro-batch.", STREAM),
    Option(
        "maxBytesPerTrigger",
        "",
        "The size of a micro-batch in bytes of the log, estimated from samples.",
        STREAM,
        is_ours=True,
    ),
    Option("minOffsetsPerTrigger", "", "A micro-batch waits until there are this many records.", STREAM),
    Option("maxTriggerDelay", "`15m`", "The maximum time to wait for `minOffsetsPerTrigger`.", STREAM),
    Option(
        "targetPartitions",
        "by slots and size",
        "The number of tasks (Spark partitions) of a batch. By default one for each slot, fewer for a small batch, up "
        "to three for a large one, and more only so that none has more than 4,000,000 records or 512 MiB.",
        is_ours=True,
    ),
    Option("minPartitions", "", "The minimum number of tasks. Large partitions are cut for it."),
    Option("maxRecordsPerPartition", "", "The maximum number of records of a task."),
    Option(
        "mergePartitions",
        "`true`",
        "Whether a task may read several topic partitions. With both this and `splitPartitions` set to false, each "
        "topic partition is one task, as with the stock connector.",
        is_ours=True,
    ),
    Option("splitPartitions", "`true`", "Whether several tasks may read parts of a topic partition.", is_ours=True),
    Option("includeHeaders", "`false`", "Whether rows have the column `headers`."),
    Option(
        "columns",
        "all but `headers`",
        "The columns of the rows, such as `value,timestamp`. Others are not decoded. Spark does not tell a Python "
        "source which ones a query uses.",
        is_ours=True,
    ),
    Option(
        "pushDownFilters",
        "`false`",
        "Whether conditions on topic, partition, offset and timestamp decide what is read. Needs the Spark setting "
        "`spark.sql.python.filterPushdown.enabled`.",
        BATCH,
        is_ours=True,
    ),
    Option(
        "groupId",
        "`kafka.group.id`",
        "The consumer group to which the progress is committed, so that any tool shows the lag of the query.",
        STREAM,
        is_ours=True,
    ),
    Option(
        "commitOffsetsToGroup",
        "`true` if a group is named",
        "Whether offsets are committed to the group. They are never read back: the checkpoint has the offsets.",
        STREAM,
        is_ours=True,
    ),
    Option("fetchOffset.numRetries", "`3`", "How often a failed lookup of offsets is retried."),
    Option("fetchOffset.retryIntervalMs", "`1000`", "The time between those retries in milliseconds."),
    Option(
        "kafkaConsumer.pollTimeoutMs",
        "`120000`",
        "How long a task waits for records that should be there, in milliseconds.",
    ),
    Option("groupIdPrefix", "", "Accepted, without effect: readers are in no group."),
)

SINK: Final = (
    Option("topic", "the column `topic`", "The topic of all rows. Takes precedence over the column."),
    Option(
        "exactlyOnce",
        "`true`, for batches `false`",
        "Whether tasks write in transactions that the driver commits, so that readers of committed records see each "
        "row once. Otherwise a task that is retried writes its rows again, as the stock connector does.",
        is_ours=True,
    ),
    Option(
        "transactionalIdPrefix",
        "`barnabas-spark`",
        "The prefix of transactional ids, and of groups that record completed batches. The id of the query follows it.",
        is_ours=True,
    ),
    Option(
        "twoPhaseCommit",
        "`auto`",
        "Whether transactions wait for the driver without a timeout (KIP-939): `true`, `false`, or `auto`, if the "
        "cluster allows it and `kafka.transaction.timeout.ms` is not set.",
        is_ours=True,
    ),
)

PASSED_ON: Final = frozenset({"checkpointlocation", "path", "queryname"})
"""Options that Spark passes to a sink although they are not meant for it, in lower case."""


def check_names(
    options: Iterable[str],
    known: Collection[Option],
    settings: Collection[str],
    what: str,
    passed_on: Collection[str] = (),
) -> None:
    """Refuses unknown options: a typo in ``startingOffsets`` would lose data silently.

    Names below ``kafka.`` are not checked, but `settings`, those that exist there, are among the suggestions:

    >>> check_names(["bootstrapServers"], SOURCE, ["bootstrap.servers"], "source")
    Traceback (most recent call last):
        ...
    barnabas.common.config_def.ConfigError: There is no option bootstrapServers for this source. Did you mean \
kafka.bootstrap.servers?
    """
    names = {option.name.lower() for option in known}
    for name in options:
        lower = name.lower()
        if lower not in names and lower not in passed_on and not lower.startswith(PREFIX):
            suggested = _suggestion(name, [*(one.name for one in known), *(PREFIX + one for one in sorted(settings))])
            hint = f" Did you mean {suggested}?" if suggested else ""
            raise ConfigError(f"There is no option {name} for this {what}.{hint}", name=name)


def _suggestion(name: str, candidates: Iterable[str]) -> str | None:
    """Returns the option that was probably meant, whatever the spelling: ``bootstrap_servers``, ``StartingOffset``."""
    by_letters: dict[str, str] = {}
    for candidate in candidates:
        by_letters.setdefault(_letters(candidate.removeprefix(PREFIX)), candidate)
    close = difflib.get_close_matches(_letters(name), by_letters, 1, cutoff=0.75)
    return by_letters[close[0]] if close else None


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def boolean(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name, str(default)).strip().lower()
    if text not in {"true", "false"}:
        raise ConfigError(f"{name} must be true or false, not {options[name]!r}.", name=name)
    return text == "true"
