"""Kafka's server-side assignors and RE2/J in a child process; `tests/java/CoordinatorOracle.java` says how."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from barnabas.common.identifiers import uuid_to_string
from barnabas.coordinator.group.assignor.partition_assignor import GroupSpec
from barnabas.coordinator.group.consumer.assignment import Assignment
from oracles.java import OracleError, OracleUnavailableError
from oracles.kafka_server import JARS
from oracles.line_program import LineProgram


class CoordinatorOracle:
    """A context manager."""

    def __init__(self) -> None:
        jars = sorted(JARS.glob("*.jar"))
        if not any(jar.name.startswith("kafka-group-coordinator-") for jar in jars):
            raise OracleUnavailableError("no Kafka server in target/server-jars (make jars)")
        self._program = LineProgram("CoordinatorOracle", jars)

    def assign(self, assignor: str, spec: GroupSpec) -> dict[str, Assignment]:
        """What Kafka's assignor of that name gives to the members."""
        ids = {uuid_to_string(topic_id): topic_id for topic_id in spec.num_partitions}
        members = [
            {
                "id": member_id,
                "instance": member.instance_id,
                "topics": [uuid_to_string(topic_id) for topic_id in sorted(member.subscribed_topic_ids)],
                "assignment": {
                    uuid_to_string(topic_id): sorted(numbers) for topic_id, numbers in member.assignment.items()
                },
            }
            for member_id, member in spec.members.items()
        ]
        sizes = {uuid_to_string(topic_id): count for topic_id, count in spec.num_partitions.items()}
        made = self._ask(op="assign", assignor=assignor, topics=sizes, members=members)
        return {
            member_id: {ids[name]: frozenset(numbers) for name, numbers in assignment.items()}
            for member_id, assignment in made.items()
        }

    def matches(self, pattern: str, texts: Sequence[str]) -> list[bool] | None:
        """Whether RE2/J finds that the pattern matches the whole of each text; None if it does not take the pattern."""
        found: list[bool] | None = self._ask(op="matches", pattern=pattern, texts=list(texts))
        return found

    def _ask(self, **question: Any) -> Any:
        answer = self._program.ask(question)
        if "error" in answer:
            raise OracleError(answer["error"], answer["message"])
        return answer["result"]

    def close(self) -> None:
        self._program.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
