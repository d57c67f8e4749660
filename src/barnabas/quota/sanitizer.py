"""User names as tags of metrics: percent-encoded, because a distinguished name has signs that JMX gives a meaning."""

from __future__ import annotations

from urllib.parse import quote


def sanitize(name: str) -> str:
    """Letters, digits, dots, hyphens and underscores stay.

    >>> sanitize("CN=alice,O=The Castle")
    'CN%3Dalice%2CO%3DThe%20Castle'
    """
    # The library takes a tilde for harmless; Java, whose names these are, does not.
    return quote(name, safe="").replace("~", "%7E")
