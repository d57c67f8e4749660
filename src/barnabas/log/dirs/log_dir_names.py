"""The names of the directories of partitions, and their suffixes.

=======================================  ==================================================================
``orders-3``                             the log of partition 3 of the topic ``orders``
``orders-3.6c1e...f0-delete``            was deleted; its files are removed after a delay, or at the next start
``orders-3.6c1e...f0-future``            is being copied here from another log directory, to replace ``orders-3``
``orders-3.6c1e...f0-stray``             should not be on this broker; kept for an operator to inspect
=======================================  ==================================================================

The number in the middle is random, so that a topic can be deleted, created and deleted again within a minute.
Renaming a directory is atomic, so a crash leaves either name.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from barnabas.common.topic_partition import TopicPartition

DELETE_DIR_SUFFIX: Final = "-delete"
FUTURE_DIR_SUFFIX: Final = "-future"
STRAY_DIR_SUFFIX: Final = "-stray"

_SUFFIXES: Final = (DELETE_DIR_SUFFIX, FUTURE_DIR_SUFFIX, STRAY_DIR_SUFFIX)
_MAX_NAME_LENGTH: Final = 255
_WITH_SUFFIX: Final = r"(\S+-\S+)\.\S+-(delete|future|stray)"
_PARTITION: Final = re.compile(r"(.+)-([0-9]{1,10})", re.DOTALL)
_MAX_PARTITION: Final = 2**31 - 1


def log_dir_name(partition: TopicPartition) -> str:
    return str(partition)


def log_delete_dir_name(partition: TopicPartition) -> str:
    """Returns a new name for a deleted log."""
    return _name_with_suffix(partition, DELETE_DIR_SUFFIX)


def log_future_dir_name(partition: TopicPartition) -> str:
    """Returns a name for a future log.

    The topic name is not shortened, because it is parsed from the directory name: it must leave 40 characters.
    """
    return f"{partition}.{os.urandom(16).hex()}{FUTURE_DIR_SUFFIX}"


def log_stray_dir_name(partition: TopicPartition) -> str:
    """Returns a new name for a stray log."""
    return _name_with_suffix(partition, STRAY_DIR_SUFFIX)


def _name_with_suffix(partition: TopicPartition, suffix: str) -> str:
    """Returns a name with suffix. Shortens a long topic name to the file system's limit; the name is not needed."""
    ending = f"-{partition.partition}.{os.urandom(16).hex()}{suffix}"
    return partition.topic[: _MAX_NAME_LENGTH - len(ending)] + ending


def is_delete_dir(path: Path) -> bool:
    return path.name.endswith(DELETE_DIR_SUFFIX)


def is_future_dir(path: Path) -> bool:
    return path.name.endswith(FUTURE_DIR_SUFFIX)


def is_stray_dir(path: Path) -> bool:
    return path.name.endswith(STRAY_DIR_SUFFIX)


def parse_topic_partition_name(directory: Path) -> TopicPartition:
    """Parses the partition from the name of a log's directory; ValueError for any other name.

    >>> parse_topic_partition_name(Path("data/my-topic-3"))
    TopicPartition(topic='my-topic', partition=3)
    >>> parse_topic_partition_name(Path("data/my-topic-3.6c1ed1f0-delete"))
    TopicPartition(topic='my-topic', partition=3)
    """
    name = directory.name
    if name.endswith(_SUFFIXES):
        # A topic may be named "x-delete", but then its directories end in a number.
        suffixed = re.fullmatch(_WITH_SUFFIX, name)
        name = suffixed[1] if suffixed else ""
    match = _PARTITION.fullmatch(name)
    if match is None or int(match[2]) > _MAX_PARTITION:
        raise ValueError(
            f"{directory} is not called like the log of a partition: topic-partition, or "
            "topic-partition.id-delete for one that is being deleted"
        )
    return TopicPartition(match[1], int(match[2]))
