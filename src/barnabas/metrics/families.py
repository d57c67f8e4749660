"""Exported metrics: families of samples with labels, and the selection of families.

A *family* has a name, a type and samples; a sample has labels and a value. Prometheus text and OTLP are two encodings
of the same families:

    kafka_log_log_size                      the family, a gauge
        topic="orders", partition="0"       4096
        topic="orders", partition="1"       1024

A broker with a thousand partitions has some twenty thousand samples. So the `LabelSet` of a partition is created once
for all families of one scrape, and a sample is a tuple.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

GAUGE: Final = "gauge"
COUNTER: Final = "counter"
SUMMARY: Final = "summary"
UNTYPED: Final = "untyped"

_IN_LABEL_VALUE: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class LabelSet:
    """The labels of a sample, and their text in Prometheus' format."""

    __slots__ = ("pairs", "text")

    def __init__(self, pairs: Mapping[str, str]) -> None:
        self.pairs = pairs
        self.text = (
            "{" + ",".join([f'{key}="{value.translate(_IN_LABEL_VALUE)}"' for key, value in pairs.items()]) + "}"
            if pairs
            else ""
        )

    def __repr__(self) -> str:
        return f"LabelSet({self.text})"


NO_LABELS: Final = LabelSet({})

Sample = tuple[str, LabelSet, float]
"""A suffix of the family's name (``_sum`` and ``_count`` of a summary, otherwise empty), labels, and a value."""


class MetricFamily:
    """All samples of one name."""

    __slots__ = ("help", "name", "samples", "type")

    def __init__(self, name: str, kind: str, text: str, samples: Iterable[Sample] = ()) -> None:
        self.name = name
        self.type = kind
        self.help = text
        self.samples: list[Sample] = list(samples)

    @classmethod
    def of(cls, name: str, kind: str, text: str, values: Iterable[tuple[LabelSet, float]]) -> MetricFamily:
        """Creates a family of values without suffixes."""
        return cls(name, kind, text, [("", labels, value) for labels, value in values])

    def __repr__(self) -> str:
        return f"MetricFamily({self.name}, {self.type}, {len(self.samples)} samples)"


class PatternFilter:
    """Selects names by two lists of regular expressions: one of `include` must match the whole name, none of `exclude`.

    >>> wanted = PatternFilter(["kafka_.*"], ["kafka_log_.*"])
    >>> [wanted(name) for name in ("kafka_server_a", "kafka_log_log_size", "process_open_fds")]
    [True, False, False]
    """

    def __init__(self, include: Iterable[str] = (".*",), exclude: Iterable[str] = ()) -> None:
        patterns = list(include)
        self._include = None if ".*" in patterns else [re.compile(pattern) for pattern in patterns]
        self._exclude = [re.compile(pattern) for pattern in exclude]

    def __call__(self, name: str) -> bool:
        included = self._include is None or any(pattern.fullmatch(name) for pattern in self._include)
        return included and not any(pattern.fullmatch(name) for pattern in self._exclude)


class MetricSelection:
    """The exported metrics by name, and the topics and groups that have samples for each partition."""

    __slots__ = ("groups", "names", "topics")

    def __init__(
        self,
        names: PatternFilter | None = None,
        topics: PatternFilter | None = None,
        groups: PatternFilter | None = None,
    ) -> None:
        self.names = names or PatternFilter()
        self.topics = topics or PatternFilter()
        self.groups = groups or PatternFilter()


EVERYTHING: Final = MetricSelection()


class FamilySource(Protocol):
    """Computes families at each export."""

    def families(self, selection: MetricSelection) -> Iterable[MetricFamily]:
        """Returns families with samples of selected topics and groups. The caller selects by name.

        A source need not compute families whose name is not selected.
        """
        ...
