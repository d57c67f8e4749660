"""Offsets of a query, and their format in Spark's checkpoints.

Spark stores, as JSON, where each micro-batch **ends**. The format is that of the stock connector, offsets by topic and
partition::

    {"orders": {"0": 23, "1": 345}}

with two additions, under keys that no topic can have::

    {"orders": {"0": 23, "1": 345, "2": 9}, "@from": {"orders": {"2": 0}}, "@tasks": 6}

``@from`` has the start offsets of partitions that the previous batch did not contain: all partitions in the first
batch, new ones later. Spark does not store where the first batch *begins*. It asks again after a failure, when "latest"
is another offset, and the records in between would be in no batch. So the start is stored with the end.

``@tasks`` is the number of tasks of the batch, so that it has the same tasks if it is repeated: see
`barnabas.spark.task_planner`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from barnabas.common.config_def import ConfigError
from barnabas.common.topic_partition import TopicPartition

Offsets = dict[TopicPartition, int]
"""One offset per partition."""

FROM: Final = "@from"
TASKS: Final = "@tasks"

EARLIEST: Final = -2
LATEST: Final = -1


def to_json(
    offsets: Mapping[TopicPartition, int], beginnings: Mapping[TopicPartition, int] | None = None, tasks: int = 0
) -> Any:
    """Converts offsets to a dictionary for JSON, always in the same order: Spark compares offsets as text."""
    by_topic: dict[str, Any] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        by_topic.setdefault(topic, {})[str(partition)] = offset
    if beginnings:
        by_topic[FROM] = to_json(beginnings)
    if tasks:
        by_topic[TASKS] = tasks
    return by_topic


def from_json(checkpoint: Mapping[str, Any]) -> Offsets:
    """Returns the offsets in a dictionary; ignores the keys that begin with ``@``."""
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, partitions in checkpoint.items()
        if not topic.startswith("@")
        for partition, offset in partitions.items()
    }


def beginnings_of(checkpoint: Mapping[str, Any]) -> Offsets:
    return from_json(checkpoint.get(FROM, {}))


def tasks_of(checkpoint: Mapping[str, Any]) -> int | None:
    """Returns the number of tasks of the batch that ends here; None for an empty batch, and for one of release 0.1."""
    tasks = checkpoint.get(TASKS)
    return None if tasks is None else int(tasks)


def parse_offsets(option: str, text: str, *, least: int = EARLIEST) -> Offsets:
    """Parses an option like ``{"orders": {"0": 23, "1": -2}}``."""
    offsets: Offsets = {}
    for topic, partitions in _object(option, text, '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}').items():
        if not isinstance(partitions, dict):
            raise _malformed(option, text, f"{topic} must be an object of partitions")
        for partition, offset in partitions.items():
            if not partition.isdecimal():
                raise _malformed(option, text, f"{partition!r} is not a partition")
            if type(offset) is not int or offset < least:
                raise _malformed(option, text, f"{offset!r} is not a valid value for {topic}-{partition}")
            offsets[TopicPartition(topic, int(partition))] = offset
    return offsets


def parse_partitions(option: str, text: str) -> tuple[TopicPartition, ...]:
    """Parses an option like ``{"orders": [0, 1]}``."""
    found: list[TopicPartition] = []
    for topic, partitions in _object(option, text, '{"topicA":[0,1],"topicB":[2,4]}').items():
        if not isinstance(partitions, list) or not all(type(one) is int and one >= 0 for one in partitions):
            raise _malformed(option, text, f"{topic} must be a list of partitions")
        found += [TopicPartition(topic, one) for one in partitions]
    if not found:
        raise _malformed(option, text, "it names no partition")
    if len(set(found)) != len(found):
        raise _malformed(option, text, "it names a partition twice")
    return tuple(sorted(found))


def named(partitions: Iterable[TopicPartition]) -> str:
    """Formats partitions for a message; shortens long lists."""
    ordered = sorted(partitions)
    shown = ", ".join(map(str, ordered[:20]))
    return f"{shown} and {len(ordered) - 20} more" if len(ordered) > 20 else shown


def _object(option: str, text: str, example: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{option} must be JSON such as {example}, not {text!r}: {error}.", name=option) from None
    if not isinstance(value, dict):
        raise ConfigError(f"{option} must be JSON such as {example}, not {text!r}.", name=option)
    return value


def _malformed(option: str, text: str, what: str) -> ConfigError:
    return ConfigError(f"{option} cannot be {text!r}: {what}.", name=option)
