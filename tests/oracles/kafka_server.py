"""Apache Kafka itself beside ours: a real single-node server, and its command-line tools.

`make jars` fetches them into target/server-jars, by tests/java/server-pom.xml. Everything runs in processes of its own,
on 127.0.0.1, and is bounded in time.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.broker_process import free_port
from benchmarks.waiting import WaitedInVainError, until

from oracles.java import OracleUnavailableError

JARS = Path(__file__).resolve().parents[2] / "target" / "server-jars"
CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
_JVM_OPTIONS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_SECONDS = 180.0
"""How long a start, a stop or a tool may take: a few seconds on a quiet machine."""


class KafkaToolError(Exception):
    """A tool ended with an error; the message is what it printed."""


def _command(main_class: str, *arguments: str) -> list[str]:
    java = shutil.which("java")
    if java is None:
        raise OracleUnavailableError("no java on the PATH")
    if not any(JARS.glob("kafka_2.13-*.jar")):
        raise OracleUnavailableError("no Kafka server in target/server-jars (make jars)")
    return [java, *_JVM_OPTIONS, "-cp", f"{JARS}{os.sep}*", main_class, *arguments]


def ensure_available() -> None:
    """`OracleUnavailableError` if Kafka cannot be run here."""
    _command("kafka.Kafka")


def run_tool(main_class: str, *arguments: str) -> str:
    """What a tool prints to its standard output."""
    result = subprocess.run(
        _command(main_class, *arguments), capture_output=True, text=True, check=False, timeout=_SECONDS
    )
    if result.returncode != 0:
        raise KafkaToolError(f"{main_class} {' '.join(arguments)}\n{result.stdout}\n{result.stderr}")
    return result.stdout


def dump_log(*files: Path) -> str:
    """``kafka-dump-log --cluster-metadata-decoder --deep-iteration`` of files."""
    names = ",".join(map(str, files))
    return run_tool(
        "org.apache.kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--deep-iteration", "--files", names
    )


def free_ports(count: int) -> list[int]:
    found: set[int] = set()
    while len(found) < count:
        found.add(free_port())
    return list(found)


class KafkaServer:
    """A broker and controller in one process. A context manager: leaving it stops the server in good order."""

    def __init__(self, directory: Path, *, static_voters: bool = False, node_id: int = 1, **settings: str) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.port, self.controller_port = free_ports(2)
        controller = f"127.0.0.1:{self.controller_port}"
        properties = {
            "process.roles": "broker,controller",
            "node.id": str(node_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.data),
            "offsets.topic.replication.factor": "1",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        if static_voters:
            properties["controller.quorum.voters"] = f"{node_id}@{controller}"
        else:
            properties["controller.quorum.bootstrap.servers"] = controller
        self.static_voters = static_voters
        self.config_file = directory / "server.properties"
        self.config_file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        self.log_file = directory / "server.out"
        """What the server of the last start has said: warnings and errors."""
        self.jvm_options: list[str] = []
        self.format_options: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def format(self) -> None:
        """``kafka-storage format``."""
        mode = () if self.static_voters else ("--standalone",)
        run_tool(
            "kafka.tools.StorageTool",
            "format",
            "-t",
            CLUSTER_ID,
            "-c",
            str(self.config_file),
            *mode,
            *self.format_options,
        )

    def start(self) -> None:
        java, *arguments = _command("kafka.Kafka", str(self.config_file))
        with self.log_file.open("wb") as output:
            self._process = subprocess.Popen(
                [java, "-Dlog4j2.level=WARN", *self.jvm_options, *arguments], stdout=output, stderr=subprocess.STDOUT
            )
        try:
            until(self._listens, self.log_file.read_text, _SECONDS, process=self._process)
        except WaitedInVainError as error:
            self.stop()
            raise KafkaToolError(f"the server did not start: {error}") from None

    def _listens(self) -> bool:
        with closing(socket.socket()) as probe:
            probe.settimeout(1)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill(self) -> None:
        """Ends the server as a power cut does."""
        process, self._process = self._process, None
        assert process is not None
        process.kill()
        process.wait()

    def pause(self) -> None:
        """Until `resume` it does nothing; what is sent to it waits in its sockets."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def topics(self, *arguments: str) -> str:
        """``kafka-topics``."""
        return run_tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", self.bootstrap_servers, *arguments)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
