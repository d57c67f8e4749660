"""Which names a topic can have.

A topic's name becomes part of the names of directories and of metrics, so it is held to what both can bear: letters,
digits, ``.``, ``_`` and ``-``, all of them ASCII, and no more than 249 of them. With a dash and the number of the
partition a directory name then stays within the 255 characters that file systems allow.

Metrics turn dots into underscores. Two topics whose names differ only in that would share their metrics, so the
controller refuses to create the second: ``a.b`` and ``a_b`` *collide*.
"""

from __future__ import annotations

import re

from barnabas.common.errors import InvalidTopicError

GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_GROUP_STATE_TOPIC = "__share_group_state"
CLUSTER_METADATA_TOPIC = "__cluster_metadata"
"""The metadata log. No topic like the others: clients never see it, and it is not among the internal topics."""

CLIENT_TELEMETRY_TOPIC = "__client_telemetry"
REQUEST_LOG_TOPIC = "__request_log"
QUOTA_USAGE_TOPIC = "__quota_usage"
TELEMETRY_TOPICS = frozenset({CLIENT_TELEMETRY_TOPIC, REQUEST_LOG_TOPIC, QUOTA_USAGE_TOPIC})
"""Topics that brokers write about themselves and their clients. Apache Kafka has none of these."""

INTERNAL_TOPICS = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC}) | TELEMETRY_TOPICS
"""Topics that brokers keep their own records in: made by the broker itself, and not for everybody to write to."""

MAX_NAME_LENGTH = 249

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def problem_with_topic_name(name: str) -> str | None:
    """What is wrong with a name, for people; None if nothing is.

    >>> problem_with_topic_name("orders.v2")
    >>> problem_with_topic_name("or/ders")
    "'or/ders' has a character other than ASCII letters, digits, '.', '_' and '-'"
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
    """Whether another name could collide with this one."""
    return "." in name or "_" in name


def collision_key(name: str) -> str:
    """What colliding names have in common, and others have not."""
    return name.replace(".", "_")


def topic_names_collide(one: str, other: str) -> bool:
    """
    >>> topic_names_collide("a.b", "a_b"), topic_names_collide("a.b", "a-b")
    (True, False)
    """
    return collision_key(one) == collision_key(other)
