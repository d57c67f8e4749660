"""``barnabas start`` in a process of its own: what the clients of other projects are tried against.

It is started as a user starts it, on a free port and with an empty data directory; its banner says where it is. Its log
goes to a file, so that a failed test can show what the broker said meanwhile.
"""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from benchmarks.broker_process import free_port

from barnabas.records.batch import RecordBatch, iter_batches

_SECONDS: Final = 120.0
"""How long a start or a stop may take; both take well under a second."""

_ADDRESS: Final = re.compile(r"bootstrap server\s+(\S+)")
_PROBLEM: Final = re.compile(r"^\S+ \S+ (ERROR|CRITICAL)|^Traceback", re.MULTILINE)


class BrokerProcess:
    """A running broker. A context manager: leaving it sends SIGTERM and expects an orderly end."""

    def __init__(self, directory: Path, overrides: Mapping[str, str] | None = None) -> None:
        self.data_dir = directory / "data"
        self.log_file = directory / "broker.log"
        self.bootstrap_servers = ""
        self._overrides = dict(overrides or {})
        self._process: subprocess.Popen[str] | None = None

    @classmethod
    def elsewhere(cls, directory: Path, bootstrap_servers: str) -> Self:
        """A broker that somebody else has started, and of which nothing but the address is known."""
        broker = cls(directory)
        broker.bootstrap_servers = bootstrap_servers
        broker.log_file.touch()
        return broker

    @property
    def host(self) -> str:
        return self.bootstrap_servers.rsplit(":", 1)[0]

    @property
    def port(self) -> int:
        return int(self.bootstrap_servers.rsplit(":", 1)[1])

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> Self:
        """Returns when the broker has said where it listens: at a free port, or again where it was before."""
        port = str(self.port) if self.bootstrap_servers else str(free_port())
        command = [sys.executable, "-m", "barnabas.cli.main", "start", "--port", port, "--data-dir", str(self.data_dir)]
        for key, value in self._overrides.items():
            command += ["--override", f"{key}={value}"]
        # Compiled modules may be kept, whatever this process was told: compiling them again takes seconds.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        with self.log_file.open("ab") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        self._process = process
        lines: queue.Queue[str] = queue.Queue()
        assert process.stdout is not None
        threading.Thread(target=_pass_on, args=(process.stdout, lines), daemon=True).start()
        while True:
            try:
                line = lines.get(timeout=_SECONDS)
            except queue.Empty:
                line = ""
            if found := _ADDRESS.search(line):
                self.bootstrap_servers = found[1]
                return self
            if not line:
                process.kill()
                process.wait()
                raise AssertionError(f"the broker did not start:\n{self.log()}")

    def stop(self) -> int:
        """Asks the broker to end; its exit code."""
        process, self._process = self._process, None
        assert process is not None
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"the broker did not stop:\n{self.log()}") from None

    def send_signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """kill -9: nothing is written down, nobody is told."""
        process, self._process = self._process, None
        assert process is not None
        process.kill()
        process.wait(_SECONDS)

    def log(self, start: int = 0) -> str:
        """What it has logged, from a position in the file on."""
        with self.log_file.open("rb") as file:
            file.seek(start)
            return file.read().decode(errors="replace")

    def log_size(self) -> int:
        return self.log_file.stat().st_size

    def problems(self) -> list[str]:
        """The lines of the log that a broker in good health does not write."""
        return [line for line in self.log().splitlines() if _PROBLEM.match(line)]

    def batches(self, topic: str) -> list[RecordBatch]:
        """The batches of partition 0 as they are kept; nothing of a broker whose files are not at hand."""
        file = self.data_dir / f"{topic}-0" / "00000000000000000000.log"
        return list(iter_batches(file.read_bytes())) if file.exists() else []

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        code = self.stop()
        if kind is None:
            assert code == 0, f"exit code {code}:\n{self.log()}"
            assert not self.problems(), self.problems()


def _pass_on(stream: IO[str], lines: queue.Queue[str]) -> None:
    """Reads the broker's output to its end, so that it never waits for a reader; an empty line says that it is over."""
    with stream:
        for line in stream:
            lines.put(line.rstrip() or " ")
    lines.put("")
