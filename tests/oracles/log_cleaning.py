"""Apache Kafka's cleaner as an oracle: what does it make of the same log, and of a log that we have cleaned?

`tests/java/LogCleaning.java` runs as a child process; the questions it answers are described there. The jars that it
needs are those of `tests/java/storage-pom.xml`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oracles.line_program import LineProgram
from oracles.log_files import storage_jars


class LogCleaningOracleError(Exception):
    """Java threw; the message is Java's."""


class LogCleaningOracle(LineProgram):
    """A running LogCleaning.java. A context manager."""

    def __init__(self) -> None:
        super().__init__("LogCleaning", storage_jars())

    def ask_about(
        self, op: str, directory: Path, config: dict[str, Any], now_ms: int, **arguments: Any
    ) -> dict[str, Any]:
        """One question; `LogCleaningOracleError` if Java threw."""
        settings = {key: str(value) for key, value in config.items()}
        result = self.ask({"op": op, "dir": str(directory), "config": settings, "now": now_ms, **arguments})
        if "error" in result:
            raise LogCleaningOracleError(result["error"])
        return result
