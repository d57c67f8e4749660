"""A broker in a process of its own, as an operator runs it: started, asked, looked at, stopped or killed.

What it costs is read from ``/proc``, so that a figure means the same for an interpreter and for a Java virtual machine.
"""

from __future__ import annotations

import os
import random
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from barnabas.protocol.framing import encode_request
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from benchmarks.waiting import WaitedInVainError, until

TIMEOUT_S = 120.0
RETRY_S = 0.001
ASK_VERSIONS = encode_request(ApiVersionsRequest(), 0, 1, "benchmark")
LENGTH = struct.Struct(">i")


class BrokerDiedError(RuntimeError):
    """The process has ended, or does not answer; the message has what it wrote."""


PORTS = range(10_000, 32_768)
"""Below the ports that systems give to connections, and to whoever binds port 0: nobody else gets one of these before
the server that it is for has bound it."""


def free_port() -> int:
    chance = random.SystemRandom()  # whatever seeds others have set, two processes do not try the same ones
    while True:
        port = chance.choice(PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def source_environment(pycache: Path | None = None) -> dict[str, str]:
    """Finds the package as this process does; compiled modules go to `pycache`, so that the second start has them."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    if pycache is not None:
        environment["PYTHONPYCACHEPREFIX"] = str(pycache)
    return environment


PLAINTEXT = "PLAINTEXT"
"""The listener that every broker here has."""


def ports_of(listeners: Collection[str], port: int | None = None) -> dict[str, int]:
    """Chooses a free port for each listener, and one for `PLAINTEXT` unless it is given."""
    return {PLAINTEXT: free_port() if port is None else port, **{name: free_port() for name in listeners}}


def listeners_text(ports: Mapping[str, int]) -> str:
    """Returns the value of ``listeners``."""
    return ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())


class ServerProcess:
    """Any server that answers ApiVersions on a port of this machine.

    ``ports`` has the port of each listener for clients. `PLAINTEXT` is one of them; without others it may be a number.
    """

    def __init__(
        self, command: Sequence[str], ports: Mapping[str, int] | int, output: Path, environment: Mapping[str, str]
    ) -> None:
        self._command = command
        self._ports = {PLAINTEXT: ports} if isinstance(ports, int) else dict(ports)
        self.port = self._ports[PLAINTEXT]
        self.output = output
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap_servers(self) -> str:
        return self.address(PLAINTEXT)

    def address(self, listener: str) -> str:
        """Returns the bootstrap server of a listener."""
        return f"127.0.0.1:{self._ports[listener]}"

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "not started"
        return self._process

    def spawn(self) -> None:
        """Starts the process and waits for nothing."""
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=self._environment
            )

    def start(self) -> float:
        """Starts it; how many seconds passed until the first request was answered."""
        started = time.perf_counter()
        self.spawn()
        try:
            self.await_answer()
        except BrokerDiedError:
            self.kill()
            raise
        return time.perf_counter() - started

    def await_answer(self) -> None:
        """Returns when an ApiVersions request has been answered."""
        try:
            until(self._answers, self.text, TIMEOUT_S, pause_s=RETRY_S, process=self.process)
        except WaitedInVainError as error:
            raise BrokerDiedError(f"no answer: {error}") from None

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT_S) as connection:
                connection.sendall(ASK_VERSIONS)
                return len(connection.recv(LENGTH.size)) > 0
        except OSError:
            return False

    def kill(self) -> None:
        """Ends it without a chance to say or to write anything."""
        self.process.kill()
        self.process.wait(TIMEOUT_S)

    def stop(self) -> int:
        """Asks it to end; its exit status."""
        self.process.terminate()
        return self.process.wait(TIMEOUT_S)

    def text(self) -> str:
        """All that it has written so far."""
        return self.output.read_text() if self.output.exists() else ""

    # -- what it costs

    @property
    def resident_bytes(self) -> int:
        return self._status("VmRSS") * 1024

    @property
    def most_resident_bytes(self) -> int:
        """Since it was started."""
        return self._status("VmHWM") * 1024

    @property
    def threads(self) -> int:
        return self._status("Threads")

    @property
    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))  # noqa: PTH208 - names are enough

    @property
    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _status(self, name: str) -> int:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1])
        raise KeyError(name)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            try:
                self.stop()
            except subprocess.TimeoutExpired:
                self.kill()


class BrokerProcess(ServerProcess):
    """``barnabas start`` on a directory; the same port and the same data each time it is started."""

    def __init__(
        self,
        data_dir: Path,
        *arguments: str,
        port: int | None = None,
        overrides: Mapping[str, object] | None = None,
        pycache: Path | None = None,
        output: Path | None = None,
        listeners: Collection[str] = (),
    ) -> None:
        """``listeners``: further ones for clients, each named by its security protocol."""
        ports = ports_of(listeners, port)
        command = [sys.executable, "-m", "barnabas.cli.main", "start", f"--data-dir={data_dir}"]
        settings = dict(overrides or {})
        if listeners:
            controller = {"CONTROLLER": free_port()}
            settings = {"listeners": listeners_text(ports | controller), **settings}
        else:
            command.append(f"--port={ports[PLAINTEXT]}")
        command += [f"--override={key}={value}" for key, value in settings.items()]
        super().__init__(
            [*command, *arguments],
            ports,
            output or data_dir.with_name(f"{data_dir.name}.out"),
            source_environment(pycache),
        )
        self.data_dir = data_dir
