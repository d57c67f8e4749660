"""A Java program of ours that runs until it is killed, as an application of somebody who uses the Java library.

application = JavaProcess("WordCount", streams_jars(), [address, "lines", "counts"], tmp_path / "application.log")
application.spawn()
...
application.kill()
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from oracles.definitions import JARS
from oracles.java import OracleUnavailableError, class_path
from oracles.line_program import compiled_classes

_JVM_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_SECONDS = 120


def client_jars() -> list[Path]:
    """The Java client and what it needs."""
    jars = class_path()
    if not any(jar.name.startswith("kafka-clients-") for jar in jars):
        raise OracleUnavailableError("no Kafka jars in target/jars (make jars)")
    return jars


def streams_jars() -> list[Path]:
    """Kafka Streams and what it needs."""
    return _jars("streams", "kafka-streams")


def connect_jars() -> list[Path]:
    """Kafka Connect, its file connectors, and what they need."""
    return _jars("connect", "connect-runtime")


def flink_jars() -> list[Path]:
    """Apache Flink, its connector for Kafka, and what they need."""
    return _jars("flink", "flink-connector-kafka")


def _jars(name: str, artifact: str) -> list[Path]:
    """Returns the jars of one set; raises `OracleUnavailableError` if they were not fetched."""
    directory = JARS.with_name(f"{name}-jars")
    jars = sorted(directory.glob("*.jar"))
    if not any(jar.name.startswith(f"{artifact}-") for jar in jars):
        raise OracleUnavailableError(f"no {artifact} in target/{name}-jars (make target/{name}-jars/.fetched)")
    return jars


class JavaProcess:
    """One program and its arguments; it can be started again after it was killed. Its log goes on in the same file.

    A name with dots is a class of the jars; any other one is a program in `tests/java`, which is compiled first.
    """

    def __init__(
        self, name: str, jars: Sequence[Path], arguments: Sequence[str], output: Path, options: Sequence[str] = ()
    ) -> None:
        own = [] if "." in name else [compiled_classes(name, jars)]
        path = os.pathsep.join(map(str, [*own, *jars]))
        # Libraries that unpack native code do that beside the log, not where all the others do.
        usual = [*_JVM_OPTIONS, f"-Djava.io.tmpdir={output.parent}", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        self._command = ["java", *usual, *options, "-cp", path, name, *arguments]
        self._output = output
        self._process: subprocess.Popen[bytes] | None = None

    def spawn(self) -> None:
        """Starts it and waits for nothing."""
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def kill(self) -> None:
        """kill -9, if it is running."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_SECONDS)

    def text(self) -> str:
        """All that it has written so far."""
        return self._output.read_text(errors="replace") if self._output.exists() else ""
