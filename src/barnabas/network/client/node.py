"""A node: one broker, as a client knows it."""

from __future__ import annotations

from barnabas.common.dataclass import dataclass, field


@dataclass(frozen=True, slots=True)
class Node:
    """The address of a broker.

    A bootstrap server, of which only the address is known yet, gets a negative id.

    >>> Node(1, "kafka.example", 9092)
    Node(id=1, host='kafka.example', port=9092, rack=None)
    """

    id: int
    host: str
    port: int
    rack: str | None = None
    id_string: str = field(init=False, repr=False, compare=False)
    """The id as the name of the connection to this node."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "id_string", str(self.id))

    @property
    def is_empty(self) -> bool:
        """Whether this means "no node", as for a partition without a leader."""
        return not self.host or self.port < 0

    def __str__(self) -> str:
        return f"{self.host}:{self.port} (id {self.id})"


NO_NODE = Node(-1, "", -1)
