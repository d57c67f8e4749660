"""Percent-encodes user names for metric tags, because a distinguished name has characters that are special in JMX."""

from __future__ import annotations

from urllib.parse import quote


def sanitize(name: str) -> str:
    """Keeps letters, digits, dots, hyphens and underscores, and encodes everything else.

    >>> sanitize("CN=alice,O=The Castle")
    'CN%3Dalice%2CO%3DThe%20Castle'
    """
    # Python's quote keeps a tilde; Java's encoder, which defines these names, does not.
    return quote(name, safe="").replace("~", "%7E")
