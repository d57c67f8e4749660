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

STREAMS_JARS = JARS.with_name("streams-jars")
_JVM_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_SECONDS = 30


def client_jars() -> list[Path]:
    """The Java client and what it needs."""
    jars = class_path()
    if not any(jar.name.startswith("kafka-clients-") for jar in jars):
        raise OracleUnavailableError("no Kafka jars in target/jars (make jars)")
    return jars


def streams_jars() -> list[Path]:
    """Kafka Streams and what it needs."""
    jars = sorted(STREAMS_JARS.glob("*.jar"))
    if not any(jar.name.startswith("kafka-streams-") for jar in jars):
        raise OracleUnavailableError("no Kafka Streams in target/streams-jars (make jars)")
    return jars


class JavaProcess:
    """One program and its arguments; it can be started again after it was killed. Its log goes on in the same file."""

    def __init__(self, name: str, jars: Sequence[Path], arguments: Sequence[str], output: Path) -> None:
        path = os.pathsep.join(map(str, [compiled_classes(name, jars), *jars]))
        # Libraries that unpack native code do that beside the log, not where all the others do.
        options = [*_JVM_OPTIONS, f"-Djava.io.tmpdir={output.parent}", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        self._command = ["java", *options, "-cp", path, name, *arguments]
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
