"""Who is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias


@dataclass(frozen=True, slots=True)
class AnyNode:
    """The broker with the least to do."""

    def __str__(self) -> str:
        return "any broker"


@dataclass(frozen=True, slots=True)
class Controller:
    """The active controller.

    A client never talks to it: brokers say that one of them is the controller, a different one each time, and forward
    to the real one what is for it (KIP-590). It still matters which one is asked, because there may be brokers that do
    not forward: they name the one that does not have to.
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
