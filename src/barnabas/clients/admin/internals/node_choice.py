"""The receivers of a request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias


@dataclass(frozen=True, slots=True)
class AnyNode:
    """The least loaded broker."""

    def __str__(self) -> str:
        return "any broker"


@dataclass(frozen=True, slots=True)
class Controller:
    """The active controller.

    A client never talks to it directly: metadata names one of the brokers as the controller, a different one each time,
    and that broker forwards to the real one (KIP-590). The choice still matters, because brokers that do not forward
    name the broker to use.
    """

    def __str__(self) -> str:
        return "the controller"


@dataclass(frozen=True, slots=True)
class Broker:
    """The broker with this id."""

    id: int

    def __str__(self) -> str:
        return f"broker {self.id}"


NodeChoice: TypeAlias = AnyNode | Controller | Broker

ANY: Final = AnyNode()
CONTROLLER: Final = Controller()
