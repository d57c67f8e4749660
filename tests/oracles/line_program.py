"""A Java program of ours that answers questions: a line of JSON in, a line of JSON out.

The program is compiled when it is first used and after a change, into target/; several test workers may do that at the
same time. It ends when its input does.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from oracles.definitions import JARS
from oracles.java import OracleUnavailableError

SOURCES = Path(__file__).resolve().parents[1] / "java"
CLASSES = JARS.parent / "oracle"
_JVM_OPTIONS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


def compiled_classes(name: str, jars: Sequence[Path]) -> Path:
    """The directory of the compiled program, which is named after what went into it."""
    javac = shutil.which("javac")
    if javac is None or shutil.which("java") is None:
        raise OracleUnavailableError("no java and javac on the PATH")
    source = SOURCES / f"{name}.java"
    fingerprint = hashlib.sha256(source.read_bytes())
    for jar in jars:
        fingerprint.update(f"{jar.name} {jar.stat().st_size} {jar.stat().st_mtime_ns}\n".encode())
    target = CLASSES / f"{name}-{fingerprint.hexdigest()[:16]}"
    if target.exists():
        return target
    CLASSES.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="compiling-", dir=CLASSES))
    try:
        path = os.pathsep.join(map(str, jars))
        command = [javac, "-encoding", "UTF-8", "-Xlint:all,-processing,-path,-classfile", "-cp", path]
        compilation = subprocess.run(
            [*command, "-d", str(scratch), str(source)], capture_output=True, text=True, check=False
        )
        if compilation.returncode != 0:
            raise RuntimeError(f"javac failed on {source.name}:\n{compilation.stderr}")
        try:
            scratch.rename(target)
        except OSError:  # another test worker was first
            if not target.exists():
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target


class LineProgram:
    """The running program. A context manager."""

    def __init__(self, name: str, jars: Sequence[Path], *options: str) -> None:
        path = os.pathsep.join(map(str, [compiled_classes(name, jars), *jars]))
        self._name = name
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            ["java", *_JVM_OPTIONS, *options, "-cp", path, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            bufsize=0,
        )
        self._unread = b""

    def ask(self, question: dict[str, Any], seconds: float = 180) -> dict[str, Any]:
        assert self._process.stdin is not None
        rest = memoryview(json.dumps(question).encode() + b"\n")
        while rest:
            rest = rest[self._process.stdin.write(rest) :]
        answer: dict[str, Any] = json.loads(self._read_line(question, seconds))
        return answer

    def logged(self) -> str:
        """What the program has written to its standard error so far."""
        # Another position than the one that the program writes at would be one for both, so no seek.
        size = os.fstat(self._stderr.fileno()).st_size
        return os.pread(self._stderr.fileno(), size, 0).decode(errors="replace")

    def _read_line(self, question: dict[str, Any], seconds: float) -> bytes:
        assert self._process.stdout is not None
        deadline = time.monotonic() + seconds
        pieces = [self._unread]
        while b"\n" not in pieces[-1]:
            piece = b""
            ready = select.select([self._process.stdout], [], [], max(deadline - time.monotonic(), 0))[0]
            if ready:
                piece = os.read(self._process.stdout.fileno(), 1 << 20)
            if not piece:
                self._process.kill()
                self._process.wait()
                raise RuntimeError(f"{self._name} gave no answer to {question}; its log: {self.logged()}")
            pieces.append(piece)
        line, _, self._unread = b"".join(pieces).partition(b"\n")
        return line

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._stderr.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
