"""A Spark cluster as processes of this machine: a master and two workers with one core each.

Nothing is given to its executors but what is installed where they run.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from benchmarks.broker_process import free_port
from benchmarks.waiting import until

SECONDS: Final = 400
"""How long anything here may take. All of it is quick, unless many others use the machine too."""
WORKERS: Final = 2
_DEPLOY: Final = "org.apache.spark.deploy"
_JAVA_OPTIONS: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""None of these processes lives long enough for the optimizing compiler to be worth its time."""
_SETTINGS: Final = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": f"'{_JAVA_OPTIONS}'",
    "spark.sql.shuffle.partitions": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
}
"""What an operator would say of the cluster in ``spark-defaults.conf``."""


class StandaloneCluster:
    """A context manager: the processes run meanwhile, with the environment that they are given."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self._port = free_port()
        self.master = f"spark://127.0.0.1:{self._port}"
        self._directory = directory
        self._log = directory / "log"
        self.environment: Final = {
            **environment,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": _JAVA_OPTIONS,
            "SPARK_SUBMIT_OPTS": _JAVA_OPTIONS,
            "PYSPARK_SUBMIT_ARGS": " ".join(
                [*(f"--conf {name}={value}" for name, value in _SETTINGS.items()), "pyspark-shell"]
            ),
        }
        """Of all processes of the cluster, and of those that use it."""
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        import pyspark

        spark_class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
        try:
            with self._log.open("wb") as output:
                self._processes.extend(
                    subprocess.Popen([spark_class, *one], env=self.environment, stdout=output, stderr=output)
                    for one in self._daemons()
                )
            until(self._is_complete, self._said, SECONDS)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _daemons(self) -> list[list[str]]:
        address = ["--host", "127.0.0.1", "--webui-port", "0"]
        daemons = [[f"{_DEPLOY}.master.Master", *address, "--port", str(self._port)]]
        for worker in self._workers():
            resources = ["--cores", "1", "--memory", "600m", "--work-dir", str(worker)]
            daemons.append([f"{_DEPLOY}.worker.Worker", *address, *resources, self.master])
        return daemons

    def _workers(self) -> list[Path]:
        return [self._directory / f"worker-{number}" for number in range(WORKERS)]

    def _said(self) -> str:
        return self._log.read_text(errors="replace")

    def _is_complete(self) -> bool:
        assert all(process.poll() is None for process in self._processes), self._said()
        return self._said().count("Registering worker") == WORKERS

    def _stop(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait(30)

    def executors(self) -> list[set[str]]:
        """The applications that each worker has had an executor of."""
        return [{one.name for one in worker.glob("app-*")} for worker in self._workers()]

    def executor_pids(self) -> list[int]:
        """The executors that run now. Each has its directory below that of its worker."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                command, directory = (process / "cmdline").read_bytes(), (process / "cwd").readlink()
            except OSError:  # ended meanwhile, or somebody else's
                continue
            if b"CoarseGrainedExecutorBackend" in command and directory.is_relative_to(self._directory):
                found.append(int(process.name))
        return found

    def command(self, directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs ``barnabas`` on the cluster as an operator does, from a directory, and expects it to succeed.

        The program is the one that is installed, as are the modules that the executors import.
        """
        before = self.executors()
        completed = subprocess.run(
            self._program(*arguments),
            env={**self.environment, "COLUMNS": "250"},  # wide enough for the tables that it shows
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert completed.returncode == 0, completed.stderr
        started = [after - known for known, after in zip(before, self.executors(), strict=True)]
        assert started[0] == started[1], "each worker has a part in it"
        assert len(started[0]) == 1
        return completed

    def _program(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "barnabas.cli.main", *arguments, "--master", self.master]

    @contextmanager
    def started(self, directory: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """The same, while it runs; what it says goes to a file ``log`` of the directory."""
        with (directory / "log").open("wb") as output:
            process = subprocess.Popen(
                self._program(*arguments), env=self.environment, cwd=directory, stdout=output, stderr=output
            )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(SECONDS)

    @contextmanager
    def connect_server(self, directory: Path) -> Iterator[str]:
        """A Spark Connect server whose executors are those of the cluster; its address."""
        import pyspark

        port = free_port()
        settings = {**_SETTINGS, "spark.connect.grpc.binding.port": str(port), "spark.driver.host": "127.0.0.1"}
        settings |= {"spark.ui.enabled": "false", "spark.executor.extraJavaOptions": _JAVA_OPTIONS}
        command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", self.master]
        command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
        for name, value in settings.items():
            command += ["--conf", f"{name}={value}"]
        log = directory / "connect.log"
        with log.open("wb") as output:
            # Spark takes the memory of this driver from the variable for daemons, which need less.
            environment = {**self.environment, "SPARK_DAEMON_MEMORY": "1g"}
            process = subprocess.Popen(command, env=environment, stdout=output, stderr=output, cwd=directory)

        def is_ready() -> bool:
            assert process.poll() is None, log.read_text(errors="replace")
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        try:
            until(is_ready, lambda: log.read_text(errors="replace"), SECONDS)
            yield f"sc://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(SECONDS)
