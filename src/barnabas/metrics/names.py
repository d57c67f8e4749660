"""Names of metrics: Kafka's own, and the JMX names that dashboards use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

_JMX_SAFE = re.compile(r"[\w\-%. \t]*", re.ASCII)
_JMX_QUOTED = str.maketrans({"\\": "\\\\", "*": "\\*", "?": "\\?", '"': '\\"', "\n": "\\n"})


class MetricName:
    """A name within a group, and tags.

    >>> MetricName("byte-rate", "Produce", {"user": "", "client-id": "billing"}).mbean_name("kafka.server")
    'kafka.server:type=Produce,client-id=billing'

    Two names with the same group, name and tags are equal; the description is not compared. The hash is computed once,
    because names are looked up on every change of a quota.
    """

    __slots__ = ("_hash", "description", "group", "name", "tags")

    def __init__(self, name: str, group: str, tags: Mapping[str, str] | None = None, description: str = "") -> None:
        self.name = name
        self.group = group
        self.tags: Mapping[str, str] = MappingProxyType(dict(tags or {}))
        self.description = description
        self._hash = hash((name, group, frozenset(self.tags.items())))

    def mbean_name(self, domain: str) -> str:
        """Returns the JMX object that has this metric as an attribute. Empty tags are left out."""
        return f"{domain}:type={self.group}" + _tag_list(self.tags)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MetricName):
            return NotImplemented
        return self.group == other.group and self.name == other.name and self.tags == other.tags

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"MetricName({self.name!r}, {self.group!r}, {dict(self.tags)!r})"


class MBeanName:
    """The JMX name of a broker metric: domain, type, name and tags.

    >>> str(MBeanName("kafka.network", "RequestMetrics", "TotalTimeMs", {"request": "Produce"}))
    'kafka.network:type=RequestMetrics,name=TotalTimeMs,request=Produce'

    The text is the identity: the order of tags matters, and a tag without a value is left out, so that ``topic=""``
    names the metric of all topics together.
    """

    __slots__ = ("_text", "domain", "name", "tags", "type")

    def __init__(self, domain: str, type_name: str, name: str, tags: Mapping[str, str] | None = None) -> None:
        self.domain = domain
        self.type = type_name
        self.name = name
        self.tags: Mapping[str, str] = MappingProxyType({key: value for key, value in (tags or {}).items() if value})
        self._text = f"{domain}:type={type_name}" + (f",name={name}" if name else "") + _tag_list(self.tags)

    def __eq__(self, other: object) -> bool:
        return self._text == other._text if isinstance(other, MBeanName) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._text)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"MBeanName({self._text!r})"


def jmx_sanitize(value: str) -> str:
    """Quotes and escapes a tag value if it has characters that are special in JMX."""
    return value if _JMX_SAFE.fullmatch(value) else f'"{value.translate(_JMX_QUOTED)}"'


def _tag_list(tags: Mapping[str, str]) -> str:
    return "".join(f",{key}={jmx_sanitize(value)}" for key, value in tags.items() if key and value)
