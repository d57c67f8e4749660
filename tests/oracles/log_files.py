"""Apache Kafka's own storage classes as an oracle: what do they make of the files of a segment?

`tests/java/LogFiles.java` runs as a child process; the questions it answers are described there. The jars that it needs
are those of `tests/java/storage-pom.xml`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oracles import definitions
from oracles.java import OracleUnavailableError
from oracles.line_program import LineProgram

JARS = definitions.JARS.parent / "storage-jars"


class LogFilesError(Exception):
    """Java threw; the message is Java's."""


def storage_jars() -> list[Path]:
    """Kafka's storage classes and what they need."""
    jars = sorted(JARS.glob("*.jar"))
    if not any(jar.name.startswith("kafka-storage-") for jar in jars):
        raise OracleUnavailableError("no Kafka jars in target/storage-jars (make jars)")
    return jars


class LogFilesOracle(LineProgram):
    """A running LogFiles.java. A context manager."""

    def __init__(self) -> None:
        super().__init__("LogFiles", storage_jars())

    def ask_about(
        self,
        op: str,
        directory: Path,
        base_offset: int,
        *,
        interval: int,
        index_bytes: int,
        **arguments: Any,
    ) -> dict[str, Any]:
        """One question; `LogFilesError` if Java threw."""
        question = {"op": op, "dir": str(directory), "base": base_offset, "interval": interval}
        result = self.ask(question | {"indexBytes": index_bytes} | arguments)
        if "error" in result:
            raise LogFilesError(result["error"])
        return result
