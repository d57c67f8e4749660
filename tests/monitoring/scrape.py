"""The page of a broker as Prometheus reads it, and the selectors of PromQL expressions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final
from urllib.request import urlopen

import promql_parser

_SAMPLE: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
_LABEL: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_OPERATORS: Final[dict[str, Callable[[str, str], bool]]] = {
    "MatchOp.Equal": lambda value, wanted: value == wanted,
    "MatchOp.NotEqual": lambda value, wanted: value != wanted,
    "MatchOp.Re": lambda value, wanted: re.fullmatch(wanted, value) is not None,
    "MatchOp.NotRe": lambda value, wanted: re.fullmatch(wanted, value) is None,
}


@dataclass(frozen=True)
class Sample:
    labels: dict[str, str]
    value: float


class Scrape:
    """The samples of one scrape by name."""

    def __init__(self, text: str) -> None:
        self.samples: dict[str, list[Sample]] = {}
        for line in text.splitlines():
            if line.startswith("#"):
                continue
            found = _SAMPLE.fullmatch(line)
            assert found, line
            labels = dict(_LABEL.findall(found[2] or ""))
            self.samples.setdefault(found[1], []).append(Sample(labels, float(found[3])))

    @classmethod
    def of(cls, address: str) -> Scrape:
        with urlopen(f"{address}/metrics", timeout=60) as response:
            return cls(response.read().decode())

    def matching(self, selector: Any) -> list[Sample]:
        """Returns the samples that a vector selector selects."""
        return [
            sample
            for sample in self.samples.get(selector.name, ())
            if all(
                _OPERATORS[str(matcher.op)](sample.labels.get(matcher.name, ""), matcher.value)
                for matcher in selector.matchers.matchers
            )
        ]


def selectors(expression: str) -> Iterator[Any]:
    """Parses an expression, and returns its vector selectors. Raises ValueError if it is not PromQL."""
    return _selectors(promql_parser.parse(expression))


def _selectors(node: Any) -> Iterator[Any]:
    if isinstance(node, promql_parser.VectorSelector):
        yield node
        return
    for name in ("lhs", "rhs", "expr", "args", "param", "vector_selector"):
        child = getattr(node, name, None)
        for one in child if isinstance(child, list) else [child]:
            if one is not None:
                yield from _selectors(one)
