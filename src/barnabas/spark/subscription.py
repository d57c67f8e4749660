"""Selects the partitions of a query: a fixed list, topics by name, or topics by pattern."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from barnabas.common.config_def import ConfigError
from barnabas.common.topic_partition import TopicPartition
from barnabas.spark.offsets import parse_partitions

_WAYS: Final = ("assign", "subscribe", "subscribePattern")


@dataclass(frozen=True, slots=True)
class Subscription:
    """One of three selections; the others are None.

    Names and patterns are looked up again for each micro-batch, so new partitions and, for a pattern, new topics are
    added to a running query. A pattern must match the whole name, and never matches internal topics.
    """

    partitions: tuple[TopicPartition, ...] | None = None
    topics: tuple[str, ...] | None = None
    pattern: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Subscription:
        given = [way for way in _WAYS if way in options]
        if not given:
            raise ConfigError(f"One of the options {', '.join(_WAYS)} must be specified.", name="subscribe")
        if len(given) > 1:
            raise ConfigError(
                f"Only one of the options {', '.join(_WAYS)} can be specified, not {' and '.join(given)}.",
                name=given[1],
            )
        way = given[0]
        text = options[way].strip()
        if way == "assign":
            return cls(partitions=parse_partitions("assign", text))
        if way == "subscribe":
            topics = tuple(dict.fromkeys(one.strip() for one in text.split(",") if one.strip()))
            if not topics:
                raise ConfigError("subscribe names no topic.", name="subscribe")
            return cls(topics=topics)
        if not text:
            raise ConfigError("subscribePattern is empty.", name="subscribePattern")
        try:
            re.compile(text)
        except re.error as error:
            raise ConfigError(
                f"subscribePattern {text!r} is not a regular expression: {error}.", name="subscribePattern"
            ) from None
        return cls(pattern=text)

    @property
    def topic_names(self) -> tuple[str, ...] | None:
        """The topics to request metadata for; None: all of them."""
        if self.partitions is not None:
            return tuple(dict.fromkeys(one.topic for one in self.partitions))
        return self.topics

    def matches(self, topic: str, *, is_internal: bool) -> bool:
        if self.pattern is None:
            return True
        return not is_internal and re.fullmatch(self.pattern, topic) is not None

    def __str__(self) -> str:
        if self.partitions is not None:
            return f"Assign[{', '.join(map(str, self.partitions))}]"
        if self.topics is not None:
            return f"Subscribe[{', '.join(self.topics)}]"
        return f"SubscribePattern[{self.pattern}]"
