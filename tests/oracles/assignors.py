"""Kafka's own assignors as an oracle: `tests/java/AssignorOracle.java`."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from barnabas.clients.consumer.assignors import Subscription
from barnabas.common.topic_partition import TopicPartition
from oracles.definitions import JARS
from oracles.java import OracleUnavailableError
from oracles.line_program import LineProgram


class AssignorOracle(LineProgram):
    """A context manager."""

    def __init__(self) -> None:
        jars = sorted(JARS.glob("*.jar"))
        if not jars:
            raise OracleUnavailableError("no Kafka jars in target/jars (make jars)")
        super().__init__("AssignorOracle", jars)

    def assign(
        self, assignor: str, topics: Mapping[str, Sequence[Iterable[str]]], members: Mapping[str, Subscription]
    ) -> dict[str, set[TopicPartition]]:
        """What each member gets; ``topics`` has the racks of each partition."""
        answer = self.ask(
            {
                "op": "assign",
                "assignor": assignor,
                "topics": {name: [sorted(racks) for racks in partitions] for name, partitions in topics.items()},
                "members": {member: _member(subscription) for member, subscription in members.items()},
            }
        )
        return {member: {TopicPartition(*row) for row in rows} for member, rows in answer.items()}

    def user_data(self, assignor: str, partitions: Sequence[TopicPartition], generation: int) -> bytes | None:
        answer = self.ask(
            {
                "op": "user_data",
                "assignor": assignor,
                "partitions": [list(one) for one in partitions],
                "generation": generation,
            }
        )
        return None if answer["bytes"] is None else base64.b64decode(answer["bytes"])

    def subscription(self, subscription: Subscription) -> bytes:
        return base64.b64decode(self.ask({"op": "subscription", **_member(subscription)})["bytes"])

    def assignment(self, partitions: Sequence[TopicPartition]) -> bytes:
        question = {"op": "assignment", "partitions": [list(one) for one in partitions]}
        return base64.b64decode(self.ask(question)["bytes"])


def _member(subscription: Subscription) -> dict[str, Any]:
    data = subscription.user_data
    return {
        "topics": list(subscription.topics),
        "owned": [list(one) for one in subscription.owned_partitions],
        "generation": subscription.generation_id,
        "rack": subscription.rack_id,
        "instance": subscription.group_instance_id,
        "user_data": None if data is None else base64.b64encode(data).decode(),
    }
