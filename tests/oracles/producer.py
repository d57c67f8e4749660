"""Kafka's own producer classes as an oracle: `tests/java/ProducerOracle.java`."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from oracles.definitions import JARS
from oracles.java import OracleUnavailableError
from oracles.line_program import LineProgram


class ProducerOracle(LineProgram):
    """A context manager."""

    def __init__(self) -> None:
        jars = sorted(JARS.glob("*.jar"))
        if not jars:
            raise OracleUnavailableError("no Kafka jars in target/jars (make jars)")
        super().__init__("ProducerOracle", jars)

    def partitions(self, keys: Sequence[bytes], count: int) -> list[int]:
        """The partition of each key, of so many."""
        encoded = [base64.b64encode(key).decode() for key in keys]
        answer: list[int] = self.ask({"op": "partitions", "keys": encoded, "count": count})["partitions"]
        return answer

    def config(self) -> dict[str, dict[str, Any]]:
        """All settings by name: type, default, validator, importance, internal."""
        return self.ask({"op": "config"})
