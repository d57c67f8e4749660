"""Source text under construction: lines, indentation, fresh names, and the objects the source refers to."""

from __future__ import annotations

import struct
from typing import Any

from barnabas.protocol.message import Message, Request


class Source:
    """Collects the generated lines of one codec and the scope they will run in.

    Structs are shared: two runs of the same format use the same ``Struct`` object under the same name.
    """

    def __init__(self, message: type[Message], version: int) -> None:
        self.message = message
        self.version = version
        self.flexible = version in message.flexible
        self.is_bounded = issubclass(message, Request)
        """Whether the limits of requests apply: see `Request.max_entries` and `Request.max_string`."""
        self.lines: list[str] = []
        self.scope: dict[str, Any] = {}
        self._counter = 0
        self._structs: dict[tuple[str, str], str] = {}

    def emit(self, depth: int, line: str) -> None:
        self.lines.append("    " * depth + line)

    def fresh(self, stem: str) -> str:
        self._counter += 1
        return f"{stem}{self._counter}"

    def bind(self, stem: str, value: Any) -> str:
        """Binds an object to a new name in the scope and returns the name."""
        name = self.fresh(stem)
        self.scope[name] = value
        return name

    def struct(self, codes: str, method: str) -> str:
        """Returns the name bound to ``Struct(codes).pack`` or ``.unpack_from``."""
        name = self._structs.get((codes, method))
        if name is None:
            name = self.bind("S", getattr(struct.Struct(f">{codes}"), method))
            self._structs[codes, method] = name
        return name

    def literal(self, value: Any) -> str:
        """Returns an expression for a default: a literal for a plain number or null, otherwise a bound name."""
        if value is None or isinstance(value, int):
            return repr(value)
        return self.bind("D", value)

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"
