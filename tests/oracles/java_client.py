"""The Java client in a child process; `tests/java/ClientDriver.java` says what it can be asked.

with JavaClient() as client:
    client.ask("create_topics", address, topics=[{"name": "orders", "partitions": 3}])
    client.produce(address, "orders", [{"value": "1"}], {"compression.type": "zstd"})
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from oracles.java import OracleError, OracleUnavailableError, class_path
from oracles.line_program import LineProgram

Record = dict[str, Any]


class JavaClient:
    """A context manager. Every call is one of the client's, and fails with its exception as an `OracleError`."""

    def __init__(self) -> None:
        jars = class_path()
        if not any(jar.name.startswith("kafka-clients-") for jar in jars):
            raise OracleUnavailableError("no Kafka jars in target/jars (make jars)")
        self._program = LineProgram("ClientDriver", jars)

    def ask(self, op: str, bootstrap: str, **arguments: Any) -> Any:
        answer = self._program.ask({"op": op, "bootstrap": bootstrap, **arguments})
        if "error" in answer:
            raise OracleError(answer["error"], answer["message"])
        return answer["result"]

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        config: Mapping[str, str] | None = None,
        *,
        name: str | None = None,
    ) -> list[Any]:
        """[partition, offset, timestamp] of each record. A producer with a name lives on."""
        sent: list[Any] = self.ask(
            "produce", bootstrap, topic=topic, records=list(records), config=dict(config or {}), name=name
        )
        return sent

    def consume(
        self,
        bootstrap: str,
        positions: Mapping[str, int | str],
        count: int,
        config: Mapping[str, str] | None = None,
        *,
        timeout_ms: int = 60_000,
    ) -> list[Record]:
        """So many records, from the given positions on; fewer if they do not come in time."""
        records: list[Record] = self.ask(
            "consume",
            bootstrap,
            positions=dict(positions),
            count=count,
            config=dict(config or {}),
            timeout_ms=timeout_ms,
        )
        return records

    def close(self) -> None:
        self._program.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
