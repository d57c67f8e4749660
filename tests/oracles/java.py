"""Apache Kafka's own Java classes as an oracle: what do they make of these bytes?

`tests/java/Oracle.java` runs as a child process for the whole test session and answers calls over its standard input
and output; the shape of a frame is described there. `make jars` fetches the jars it needs.

    oracle.decode_to_json("VoteRequest", 2, payload)     # Java reads our bytes
    oracle.encode_from_json("VoteRequest", 2, {...})     # our field values, Java's bytes
    oracle.reencode_many([("VoteRequest", 2, payload), ...])   # thousands in one exchange

JSON is in the form of Kafka's converters: camelCase field names, bytes and record data as base64, uuids in Kafka's
22-letter form. A tagged field that has its default value is left out, and unknown tagged fields do not show up at all
(`reencode` keeps them). A float must be given as a float: 1.0, not 1.
"""

from __future__ import annotations

import hashlib
import json
import os
import selectors
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from oracles.definitions import JARS

SOURCE = Path(__file__).resolve().parents[1] / "java" / "Oracle.java"
CLASSES = JARS.parent / "oracle"
# A frame is held whole on both sides, so long lists of calls are cut into several.
_FRAME_BYTES = 8 << 20
_ANSWER_SECONDS = 120.0
_JVM_OPTIONS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


class OracleError(Exception):
    """Java threw; the message is Java's, after the name of its exception class."""

    def __init__(self, java_class: str, java_message: str | None) -> None:
        super().__init__(f"{java_class.rpartition('.')[2]}: {java_message}")
        self.java_class = java_class
        self.java_message = java_message


class OracleUnavailableError(Exception):
    """The oracle cannot run here; the message says what is missing."""


class Call(NamedTuple):
    """One question: an operation of Oracle.java, its payload and its other arguments."""

    op: str
    payload: bytes = b""
    arguments: dict[str, Any] = {}  # noqa: RUF012 - never changed


class ErrorCall(NamedTuple):
    """A request, and the error that ended it: its code, and its message if that is not the usual one of the code."""

    api_key: int
    version: int
    payload: bytes
    code: int
    message: str | None
    throttle_time_ms: int

    def arguments(self) -> dict[str, Any]:
        given = self._asdict()
        del given["payload"]
        return given


def server_jars() -> list[Path]:
    """The jars of Kafka's server side, which Oracle.java loads apart from the class path."""
    return sorted(set(JARS.glob("kafka-*.jar")) - set(JARS.glob("kafka-clients-*.jar")))


def class_path() -> list[Path]:
    """What is left: the client, its codecs and a JSON library."""
    return sorted(set(JARS.glob("*.jar")) - set(server_jars()))


def compiled_classes() -> Path:
    """The directory of the compiled program, compiled first where that has not been done.

    The directory is named after what went into it, so a changed source or jar cannot meet stale classes. Several test
    workers may come here at once: each compiles into a directory of its own, and the first to rename it wins.
    """
    jars = class_path()
    if not any(jar.name.startswith("kafka-clients-") for jar in jars):
        raise OracleUnavailableError("no Kafka jars in target/jars (make jars)")
    javac = shutil.which("javac")
    if javac is None or shutil.which("java") is None:
        raise OracleUnavailableError("no java and javac on the PATH")
    fingerprint = hashlib.sha256(SOURCE.read_bytes())
    for jar in jars:
        fingerprint.update(f"{jar.name} {jar.stat().st_size} {jar.stat().st_mtime_ns}\n".encode())
    target = CLASSES / fingerprint.hexdigest()[:16]
    if not target.exists():
        CLASSES.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix="compiling-", dir=CLASSES))
        try:
            command = [
                javac,
                "-encoding",
                "UTF-8",
                "-cp",
                os.pathsep.join(map(str, jars)),
                "-d",
                str(scratch),
                str(SOURCE),
            ]
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


class JavaOracle:
    """A running Oracle.java. A context manager: leaving it closes the program's input and waits for its end."""

    def __init__(self) -> None:
        classes = compiled_classes()
        path = os.pathsep.join(map(str, [classes, *class_path()]))
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            ["java", *_JVM_OPTIONS, "-cp", path, "Oracle", *map(str, server_jars())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            bufsize=0,
        )
        self._lock = threading.Lock()  # guards the two pipes: an answer belongs to the frame written just before it
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._process.stdout, selectors.EVENT_READ)  # type: ignore[arg-type]
        self._messages: dict[str, dict[str, Any]] | None = None

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
        self._selector.close()
        process.stdout.close()
        self._stderr.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Messages

    def messages(self) -> dict[str, dict[str, Any]]:
        """Every message Java has, by its name: class, lowestVersion, highestVersion, apiKey (-1 for none).

        The name is the one of the message definition: ProduceRequest, RequestHeader, QuorumStateData.
        """
        if self._messages is None:
            self._messages = json.loads(self._ask(Call("messages")))
        assert self._messages is not None
        return self._messages

    def has_message(self, name: str) -> bool:
        return name in self.messages()

    def describe_message(self, name: str) -> dict[str, Any]:
        """The entry of `messages` for one name; KeyError for a name that Java does not have."""
        return self.messages()[name]

    def decode_to_json(self, name: str, version: int, payload: bytes) -> Any:
        """Java reads the payload, all of it, and tells what it read."""
        return json.loads(self._ask(_message_call("decode", name, version, payload)))

    def encode_from_json(self, name: str, version: int, value: Any) -> bytes:
        """Java's bytes for a message given in the form that `decode_to_json` returns."""
        return self._ask(_message_call("encode", name, version, json.dumps(value).encode()))

    def reencode(self, name: str, version: int, payload: bytes) -> bytes:
        """Java reads the payload, all of it, and writes it again."""
        return self._ask(_message_call("reencode", name, version, payload))

    def encode_default(self, name: str, version: int) -> bytes:
        """Java's bytes for a message nobody has set a field of."""
        return self._ask(_message_call("default", name, version, b""))

    # The same for many at once: results in the order of the calls, an OracleError in the place of each that failed.

    def decode_to_json_many(self, calls: Iterable[tuple[str, int, bytes]]) -> list[Any | OracleError]:
        results = self.run([_message_call("decode", *call) for call in calls])
        return [result if isinstance(result, OracleError) else json.loads(result) for result in results]

    def encode_from_json_many(self, calls: Iterable[tuple[str, int, Any]]) -> list[bytes | OracleError]:
        return self.run(
            [_message_call("encode", name, version, json.dumps(value).encode()) for name, version, value in calls]
        )

    def reencode_many(self, calls: Iterable[tuple[str, int, bytes]]) -> list[bytes | OracleError]:
        return self.run([_message_call("reencode", *call) for call in calls])

    def encode_default_many(self, calls: Iterable[tuple[str, int]]) -> list[bytes | OracleError]:
        return self.run([_message_call("default", *call, b"") for call in calls])

    # Record batches

    def read_batches(self, data: bytes, *, allow_partial: bool = False) -> list[dict[str, Any]]:
        """What Java's MemoryRecords finds in the bytes, one dict for each batch.

        Always there: sizeInBytes, magic, valid, error, records. Of a batch that Java rejects, records is None and
        error says why. Of a valid one there are also baseOffset, lastOffset, compression, timestampType, producerId,
        producerEpoch, baseSequence, lastSequence, isTransactional, isControl, partitionLeaderEpoch, baseTimestamp,
        maxTimestamp, deleteHorizonMs, checksum, count; and of a record offset, timestamp, sequence, key, value
        (base64 or None), headers ([name, base64 or None] each), in a control batch controlType.

        Java skips an incomplete batch at the end without a word; here that is an error unless `allow_partial`.
        """
        batches: list[dict[str, Any]] = json.loads(
            self._ask(Call("read_batches", bytes(data), {"allow_partial": allow_partial}))
        )
        return batches

    def write_batch(self, spec: dict[str, Any]) -> bytes:
        """A batch by Java's MemoryRecordsBuilder.

        spec: timestampType ("CreateTime" or "LogAppendTime"), records (timestamp, key, value, and if wanted headers
        and offset, as `read_batches` gives them); and if wanted compression, level, baseOffset, logAppendTime (else
        the newest timestamp), producerId, producerEpoch, baseSequence, isTransactional, isControl,
        partitionLeaderEpoch, deleteHorizonMs.
        """
        return self._ask(Call("write_batch", json.dumps(spec).encode()))

    def write_end_txn_marker(self, spec: dict[str, Any]) -> bytes:
        """The control batch that ends a transaction.

        spec: controlType ("COMMIT" or "ABORT"), coordinatorEpoch, timestamp, producerId, producerEpoch; and if wanted
        baseOffset and partitionLeaderEpoch.
        """
        return self._ask(Call("write_end_txn_marker", json.dumps(spec).encode()))

    # Error responses

    def error_responses(self, calls: Iterable[ErrorCall]) -> list[bytes | OracleError]:
        """The body of the answer that says that the whole request failed; b"" where the API then gives no answer."""
        results = self.run([Call("error_response", call.payload, call.arguments()) for call in calls])
        return [result if isinstance(result, OracleError) else result[1:] if result[0] else b"" for result in results]

    # Tables and checksums

    def errors(self) -> list[dict[str, Any]]:
        """Java's error table: code, name, exception (simple class name), superclasses (nearest first),
        retriable, message (the usual one of the code)."""
        errors: list[dict[str, Any]] = json.loads(self._ask(Call("errors")))
        return errors

    def api_keys(self) -> list[dict[str, Any]]:
        """Java's API keys.

        id, name, enumName, listeners, lowestVersion, highestVersion, highestUnstableVersion, clusterAction,
        forwardable, requiresDelayedAllocation; requestHeaderVersions and responseHeaderVersions by version (text).
        """
        keys: list[dict[str, Any]] = json.loads(self._ask(Call("api_keys")))
        return keys

    def murmur2(self, keys: Sequence[bytes]) -> list[int]:
        """The hash that Java's partitioner takes of a key, as a signed int32."""
        answers = self.run([Call("murmur2", key) for key in keys])
        return [int.from_bytes(_checked(answer), signed=True) for answer in answers]

    def crc32c(self, data: bytes) -> int:
        return int.from_bytes(self._ask(Call("crc32c", data)))

    # The exchange

    def run(self, calls: Sequence[Call]) -> list[bytes | OracleError]:
        """Any calls, in as few frames as their size allows."""
        results: list[bytes | OracleError] = []
        start, size = 0, 0
        for end, call in enumerate(calls, 1):
            size += len(call.payload) + 200
            if size >= _FRAME_BYTES or end == len(calls):
                results += self._exchange(calls[start:end])
                start, size = end, 0
        return results

    def _ask(self, call: Call) -> bytes:
        return _checked(self.run([call])[0])

    def _exchange(self, calls: Sequence[Call]) -> list[bytes | OracleError]:
        header = json.dumps([{"op": call.op, "size": len(call.payload), **call.arguments} for call in calls])
        frame = b"".join([header.encode(), b"\n", *[call.payload for call in calls]])
        with self._lock:
            self._write(len(frame).to_bytes(4) + frame)
            answer = self._read(int.from_bytes(self._read(4)))
        position = answer.index(b"\n") + 1
        results: list[bytes | OracleError] = []
        for result in json.loads(answer[: position - 1]):
            if "error" in result:
                results.append(OracleError(result["error"]["class"], result["error"]["message"]))
            else:
                results.append(answer[position : position + result["size"]])
                position += result["size"]
        return results

    def _write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._process.stdin.write(rest) :]
        except BrokenPipeError:
            raise self._failure("has ended") from None

    def _read(self, size: int) -> bytes:
        assert self._process.stdout is not None
        deadline = time.monotonic() + _ANSWER_SECONDS
        data = bytearray()
        while len(data) < size:
            if not self._selector.select(deadline - time.monotonic()):
                raise self._failure(f"gave no answer within {_ANSWER_SECONDS:.0f} seconds")
            chunk = os.read(self._process.stdout.fileno(), min(size - len(data), 1 << 20))
            if not chunk:
                raise self._failure("has ended")
            data += chunk
        return bytes(data)

    def _failure(self, what: str) -> RuntimeError:
        """After this the pipes are out of step, so the process is of no more use."""
        self._process.kill()
        self._process.wait()
        self._stderr.seek(0)
        said = self._stderr.read().decode(errors="replace").strip()
        return RuntimeError(f"the Java oracle {what}; its standard error: {said or '(empty)'}")


def _message_call(op: str, name: str, version: int, payload: bytes) -> Call:
    return Call(op, bytes(payload), {"name": name, "version": version})


def _checked(result: bytes | OracleError) -> bytes:
    if isinstance(result, OracleError):
        raise result
    return result
