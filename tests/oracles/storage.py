"""Apache Kafka's storage classes as an oracle: do they read our files, we theirs, and do both come to the same state?

`tests/java/StorageOracle.java` runs as a child process and answers calls over its standard input and output, one line
of JSON each. What it can be asked is in the methods below; they return what Java returned or raise `OracleError`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from oracles.java import OracleError, OracleUnavailableError, class_path, server_jars

SOURCE = Path(__file__).resolve().parents[1] / "java" / "StorageOracle.java"
CLASSES = Path(__file__).resolve().parents[2] / "target" / "storage-oracle"
_ANSWER_SECONDS = 120.0
_JVM_OPTIONS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


def compiled_classes() -> Path:
    """The directory of the compiled program, named after what went into it; several test workers may ask at once."""
    jars = [*class_path(), *server_jars()]
    if not any(jar.name.startswith("kafka-storage-") and "api" not in jar.name for jar in jars):
        raise OracleUnavailableError("no Kafka jars in target/jars (make jars)")
    javac = shutil.which("javac")
    if javac is None or shutil.which("java") is None:
        raise OracleUnavailableError("no java and javac on the PATH")
    fingerprint = hashlib.sha256(SOURCE.read_bytes())
    for jar in jars:
        fingerprint.update(f"{jar.name} {jar.stat().st_size} {jar.stat().st_mtime_ns}\n".encode())
    target = CLASSES / fingerprint.hexdigest()[:16]
    if target.exists():
        return target
    CLASSES.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="compiling-", dir=CLASSES))
    try:
        path = os.pathsep.join(map(str, jars))
        command = [javac, "-encoding", "UTF-8", "-cp", path, "-d", str(scratch), str(SOURCE)]
        compilation = subprocess.run(command, capture_output=True, text=True, check=False)
        if compilation.returncode != 0:
            raise RuntimeError(f"javac failed on {SOURCE.name}:\n{compilation.stderr}")
        try:
            scratch.rename(target)
        except OSError:
            if not target.exists():
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target


class StorageOracle:
    """A running StorageOracle.java. A context manager: leaving it closes the program's input and waits for its end."""

    def __init__(self) -> None:
        path = os.pathsep.join(map(str, [compiled_classes(), *class_path()]))
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            ["java", *_JVM_OPTIONS, "-cp", path, "StorageOracle", *map(str, server_jars())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            bufsize=0,
        )
        self._lock = threading.Lock()  # guards the two pipes: an answer belongs to the call written just before it
        self._unread = b""

    def close(self) -> None:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        self._stderr.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Files

    def read_snapshot(self, path: Path) -> list[Any]:
        """[producer id, epoch, coordinator epoch, timestamp, transaction's first offset or None, batches] each.

        A batch is [last sequence, last offset, offset delta, timestamp].
        """
        entries: list[Any] = self._ask("read_snapshot", path=str(path))
        return entries

    def write_snapshot(self, path: Path, entries: list[Any]) -> None:
        self._ask("write_snapshot", path=str(path), entries=entries)

    def read_epochs(self, path: Path) -> Any:
        return self._ask("read_epochs", path=str(path))

    def write_epochs(self, path: Path, entries: list[Any]) -> None:
        self._ask("write_epochs", path=str(path), entries=entries)

    def read_offsets(self, path: Path) -> Any:
        """[topic, partition, offset] each."""
        return self._ask("read_offsets", path=str(path))

    def write_offsets(self, path: Path, entries: list[Any]) -> None:
        self._ask("write_offsets", path=str(path), entries=entries)

    def read_meta(self, path: Path) -> Any:
        """[version, cluster id, node id, directory id]"""
        return self._ask("read_meta", path=str(path))

    def write_meta(self, path: Path, version: int, cluster_id: str, node_id: int, directory_id: str) -> None:
        arguments = {"version": version, "cluster_id": cluster_id, "node_id": node_id, "directory_id": directory_id}
        self._ask("write_meta", path=str(path), **arguments)

    def read_partition_metadata(self, path: Path) -> Any:
        return self._ask("read_partition_metadata", path=str(path))

    def write_partition_metadata(self, path: Path, topic_id: str) -> None:
        self._ask("write_partition_metadata", path=str(path), topic_id=topic_id)

    def read_clean_shutdown(self, log_dir: Path) -> Any:
        return self._ask("read_clean_shutdown", path=str(log_dir))

    def write_clean_shutdown(self, log_dir: Path, broker_epoch: int) -> None:
        self._ask("write_clean_shutdown", path=str(log_dir), broker_epoch=broker_epoch)

    # Configuration

    def load_properties(self, data: bytes) -> dict[str, str]:
        """What java.util.Properties reads."""
        properties: dict[str, str] = self._ask("load_properties", data=base64.b64encode(data).decode())
        return properties

    def parse_type(self, value: str, kind: str) -> Any:
        """A setting's value as ConfigDef parses it and writes it again."""
        return self._ask("parse_type", value=value, type=kind)

    def config_keys(self) -> dict[str, Any]:
        """``topic`` and ``server``: by name [type, default, valid values, importance, internal]; ``synonyms``: by topic
        setting a list of [server setting, what it makes of "7"].
        """
        keys: dict[str, Any] = self._ask("config_keys")
        return keys

    def validate_topic_config(self, properties: dict[str, str]) -> None:
        self._ask("validate_topic_config", properties=properties)

    # Scripts: [outcome, state] after each step

    def epoch_script(self, log_dir: Path, steps: list[Any]) -> list[Any]:
        outcomes: list[Any] = self._ask("epoch_script", path=str(log_dir), steps=steps)
        return outcomes

    def producer_script(self, log_dir: Path, steps: list[Any]) -> list[Any]:
        outcomes: list[Any] = self._ask("producer_script", path=str(log_dir), steps=steps)
        return outcomes

    # The exchange

    def _ask(self, op: str, **arguments: Any) -> Any:
        with self._lock:
            self._write(json.dumps({"op": op, **arguments}).encode() + b"\n")
            answer = json.loads(self._read_line())
        if "error" in answer:
            raise OracleError(answer["error"]["class"], answer["error"]["message"])
        return answer["result"]

    def _write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._process.stdin.write(rest) :]
        except BrokenPipeError:
            raise self._failure("has ended") from None

    def _read_line(self) -> bytes:
        assert self._process.stdout is not None
        deadline = time.monotonic() + _ANSWER_SECONDS
        pieces = [self._unread]
        while b"\n" not in pieces[-1]:
            if not select.select([self._process.stdout], [], [], max(deadline - time.monotonic(), 0))[0]:
                raise self._failure(f"gave no answer within {_ANSWER_SECONDS:.0f} seconds")
            piece = os.read(self._process.stdout.fileno(), 1 << 20)
            if not piece:
                raise self._failure("has ended")
            pieces.append(piece)
        line, _, self._unread = b"".join(pieces).partition(b"\n")
        return line

    def _failure(self, what: str) -> RuntimeError:
        self._process.kill()
        self._process.wait()
        self._stderr.seek(0)
        said = self._stderr.read().decode(errors="replace").strip()
        return RuntimeError(f"the storage oracle {what}; its standard error: {said or '(empty)'}")
