"""Apache Kafka's command line tools, run by `tests/java/ToolDriver.java`: many runs in one virtual machine.

with KafkaTools() as tools:
    tools.run("kafka-topics", "--bootstrap-server", address, "--list")
"""

from __future__ import annotations

from typing import Any, Final, Self

from oracles.java import OracleUnavailableError
from oracles.kafka_server import JARS
from oracles.line_program import LineProgram

_TOOLS: Final = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
}


class ToolFailedError(Exception):
    """A tool ended with a status other than 0."""

    def __init__(self, command: str, status: int, out: str, err: str) -> None:
        super().__init__(f"{command}\nended with {status}\n{out}\n{err}")
        self.status = status
        self.out = out
        self.err = err


class KafkaTools:
    """A context manager."""

    def __init__(self) -> None:
        jars = sorted(JARS.glob("*.jar"))
        if not any(jar.name.startswith("kafka-tools-") for jar in jars):
            raise OracleUnavailableError("no Kafka tools in target/server-jars (make jars)")
        self._program = LineProgram("ToolDriver", jars)

    def run(self, tool: str, *arguments: str, stdin: str = "", seconds: float = 300) -> str:
        """What the tool printed to its standard output; `ToolFailedError` if it did not end well."""
        out, err, status = self.result(tool, *arguments, stdin=stdin, seconds=seconds)
        if status != 0:
            raise ToolFailedError(f"{tool} {' '.join(arguments)}", status, out, err)
        return out

    def result(self, tool: str, *arguments: str, stdin: str = "", seconds: float = 300) -> tuple[str, str, int]:
        """Standard output, standard error and exit status of a run."""
        question: dict[str, Any] = {"main": _TOOLS[tool], "args": list(arguments), "stdin": stdin}
        answer = self._program.ask(question, seconds)
        return answer["out"], answer["err"], answer["exit"]

    def close(self) -> None:
        self._program.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
