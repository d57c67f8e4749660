"""Barnabas: a Kafka-compatible streaming platform in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.embedded import EmbeddedBroker

__all__ = ["EmbeddedBroker", "__version__"]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Loads a part when it is first used: whoever only wants a client does not pay for a broker."""
    if name == "EmbeddedBroker":
        from barnabas.embedded import EmbeddedBroker  # noqa: PLC0415 - see above

        return EmbeddedBroker
    raise AttributeError(f"module 'barnabas' has no attribute {name!r}")
