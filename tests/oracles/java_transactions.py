"""Transactional producers of the Java client, step by step; `tests/java/TransactionDriver.java` says how.

with JavaTransactions() as java:
    java.open("one", address, {"transactional.id": "orders"})
    java.init("one")
    java.begin("one")
    java.send("one", "orders", ["1", "2"])
    java.commit("one")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from oracles.java import OracleError, OracleUnavailableError, class_path
from oracles.line_program import LineProgram


class JavaTransactions:
    """A context manager. What a producer throws is an `OracleError` with the name of the exception."""

    def __init__(self) -> None:
        jars = class_path()
        if not any(jar.name.startswith("kafka-clients-") for jar in jars):
            raise OracleUnavailableError("no Kafka jars in target/jars (make jars)")
        self._program = LineProgram("TransactionDriver", jars)

    def ask(self, op: str, **arguments: Any) -> Any:
        answer = self._program.ask({"op": op, **arguments})
        if "error" in answer:
            raise OracleError(answer["error"], answer["message"])
        return answer["result"]

    def open(self, name: str, bootstrap: str, config: Mapping[str, str]) -> None:
        self.ask("open", name=name, bootstrap=bootstrap, config=dict(config))

    def init(self, name: str) -> None:
        self.ask("init", name=name)

    def begin(self, name: str) -> None:
        self.ask("begin", name=name)

    def send(self, name: str, topic: str, values: Sequence[str], partition: int = 0) -> list[int]:
        """The offsets that the records got."""
        offsets: list[int] = self.ask("send", name=name, topic=topic, values=list(values), partition=partition)
        return offsets

    def send_offsets(self, name: str, group: str, topic: str, offset: int, partition: int = 0) -> None:
        self.ask("send_offsets", name=name, group=group, topic=topic, partition=partition, offset=offset)

    def commit(self, name: str) -> None:
        self.ask("commit", name=name)

    def abort(self, name: str) -> None:
        self.ask("abort", name=name)

    def close_producer(self, name: str, timeout_ms: int = 5000) -> None:
        self.ask("close", name=name, timeout_ms=timeout_ms)

    def describe(self, bootstrap: str, transactional_id: str) -> dict[str, Any]:
        described: dict[str, Any] = self.ask("describe_transaction", bootstrap=bootstrap, id=transactional_id)
        return described

    def close(self) -> None:
        self._program.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
