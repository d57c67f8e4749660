"""The rules for names of topics.

A topic's name becomes part of the names of directories and metrics, so it is limited to what both allow: ASCII letters,
digits, ``.``, ``_`` and ``-``, at most 249 of them. With a dash and the number of the partition a directory name then
has at most 255 characters, the limit of file systems.

Metrics turn dots into underscores. Two topics whose names differ only in that would share their metrics, so the
controller does not create the second: ``a.b`` and ``a_b`` *collide*.
"""

from __future__ import annotations

import re

from barnabas.common.errors import InvalidTopicError

GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_GROUP_STATE_TOPIC = "__share_group_state"
CLUSTER_METADATA_TOPIC = "__cluster_metadata"
"""The metadata log. It is not an ordinary topic: clients never see it, and it is not among the internal topics."""

CLIENT_TELEMETRY_TOPIC = "__client_telemetry"
REQUEST_LOG_TOPIC = "__request_log"
QUOTA_USAGE_TOPIC = "__quota_usage"
TELEMETRY_TOPICS = frozenset({CLIENT_TELEMETRY_TOPIC, REQUEST_LOG_TOPIC, QUOTA_USAGE_TOPIC})
"""Topics with telemetry of brokers and clients. Apache Kafka has none of these."""

INTERNAL_TOPICS = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC}) | TELEMETRY_TOPICS
"""Topics for the brokers' own records: the broker creates them, and not every client may write to them."""

MAX_NAME_LENGTH = 249

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def problem_with_topic_name(name: str) -> str | None:
    """Returns what is wrong with a name; None if it is valid.

    >>> problem_with_topic_name("orders.v2")
    >>> problem_with_topic_name("or/ders")
    "'or/ders' has characters other than ASCII letters, digits, '.', '_' and '-'"
    """
    if not name:
        return "it is empty"
    if name in {".", ".."}:
        return f"{name!r} is a reserved directory name"
    if len(name) > MAX_NAME_LENGTH:
        return f"it has {len(name)} characters; at most {MAX_NAME_LENGTH} are allowed"
    if not _LEGAL.fullmatch(name):
        return f"{name!r} has characters other than ASCII letters, digits, '.', '_' and '-'"
    return None


def is_valid_topic_name(name: str) -> bool:
    return problem_with_topic_name(name) is None


def validate_topic_name(name: str) -> None:
    problem = problem_with_topic_name(name)
    if problem is not None:
        raise InvalidTopicError(f"Topic name is invalid: {problem}", invalid_topics=(name,))


def is_internal_topic(name: str) -> bool:
    return name in INTERNAL_TOPICS


def has_collision_characters(name: str) -> bool:
    """Returns whether another name could collide with this one."""
    return "." in name or "_" in name


def collision_key(name: str) -> str:
    """Returns a key that colliding names share, and others do not."""
    return name.replace(".", "_")


def topic_names_collide(one: str, other: str) -> bool:
    """Returns whether two names would share their metrics.

    >>> topic_names_collide("a.b", "a_b"), topic_names_collide("a.b", "a-b")
    (True, False)
    """
    return collision_key(one) == collision_key(other)
