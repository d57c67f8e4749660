"""Apache Kafka's cleaner as an oracle: what does it make of the same log, and of a log that we have cleaned?

`tests/java/LogCleaning.java` runs as a child process; the questions it answers are described there. The jars that it
needs are those of `tests/java/storage-pom.xml`.
"""

from __future__ import annotations

import hashlib
import json
import os
import selectors
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from oracles.java import OracleUnavailableError
from oracles.log_files import CLASSES, JARS

SOURCE = Path(__file__).resolve().parents[1] / "java" / "LogCleaning.java"
_ANSWER_SECONDS = 60.0


class LogCleaningOracleError(Exception):
    """Java threw; the message is Java's."""


def compiled_classes() -> Path:
    """The directory of the compiled program, named after what went into it; compiled first where need be."""
    jars = sorted(JARS.glob("*.jar"))
    if not any(jar.name.startswith("kafka-storage-") for jar in jars):
        raise OracleUnavailableError("no Kafka jars in target/storage-jars (make jars)")
    javac = shutil.which("javac")
    if javac is None or shutil.which("java") is None:
        raise OracleUnavailableError("no java and javac on the PATH")
    fingerprint = hashlib.sha256(SOURCE.read_bytes())
    for jar in jars:
        fingerprint.update(f"{jar.name} {jar.stat().st_size} {jar.stat().st_mtime_ns}\n".encode())
    target = CLASSES / f"log-cleaning-{fingerprint.hexdigest()[:16]}"
    if not target.exists():
        CLASSES.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix="compiling-", dir=CLASSES))
        try:
            command = [javac, "-encoding", "UTF-8", "-cp", f"{JARS}/*", "-d", str(scratch), str(SOURCE)]
            compilation = subprocess.run(command, capture_output=True, text=True, check=False)
            if compilation.returncode != 0:
                raise RuntimeError(f"javac failed on {SOURCE.name}:\n{compilation.stderr}")
            try:
                scratch.rename(target)
            except OSError:  # another test worker was first
                if not target.exists():
                    raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return target


class LogCleaningOracle:
    """A running LogCleaning.java. A context manager."""

    def __init__(self) -> None:
        path = os.pathsep.join([str(compiled_classes()), f"{JARS}/*"])
        options = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
        self._process = subprocess.Popen(
            ["java", *options, "-cp", path, "LogCleaning"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._process.stdout, selectors.EVENT_READ)  # type: ignore[arg-type]

    def ask(self, op: str, directory: Path, config: dict[str, Any], now_ms: int, **arguments: Any) -> dict[str, Any]:
        """One question; `LogCleaningOracleError` if Java threw."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        settings = {key: str(value) for key, value in config.items()}
        line = json.dumps({"op": op, "dir": str(directory), "config": settings, "now": now_ms, **arguments})
        self._process.stdin.write(line.encode() + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            if not self._selector.select(_ANSWER_SECONDS):
                raise RuntimeError(f"no answer to {op} within {_ANSWER_SECONDS:.0f} seconds")
            part = os.read(self._process.stdout.fileno(), 1 << 16)
            if not part:
                raise RuntimeError(f"LogCleaning.java ended with {self._process.wait()}")
            answer += part
        result: dict[str, Any] = json.loads(answer)
        if "error" in result:
            raise LogCleaningOracleError(result["error"])
        return result

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._selector.close()
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
