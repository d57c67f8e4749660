"""``make demo``: it ends by itself, shows what it should, and leaves nothing behind, also after Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pytest
from benchmarks.waiting import until

from spark.conftest import unavailable

DEMO: Final = Path(__file__).resolve().parents[2] / "examples" / "demo.py"
BROKER: Final = re.compile(r"A broker at ([\d.]+):(\d+)")
LIMIT_S: Final = 900.0
"""For a machine that runs other tests meanwhile. By itself the whole of it takes about a minute."""


class Demo:
    """The demo in a session of its own, as if it had a terminal to itself."""

    def __init__(self, directory: Path, *arguments: str, **environment: str) -> None:
        self.temporary, self.out = directory / "temporary", directory / "out"
        self.temporary.mkdir()
        self._log = directory / "log"
        own = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(DEMO), "--out", str(self.out), *arguments],
                env={**own, "TMPDIR": str(self.temporary), **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=directory,
            )

    @property
    def text(self) -> str:
        return self._log.read_text()

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        until(condition, lambda: f"{what}:\n{self.text}", LIMIT_S)

    def wait_for_text(self, pattern: str) -> re.Match[str]:
        self.wait_for(lambda: re.search(pattern, self.text) or self._process.poll() is not None, pattern)
        found = re.search(pattern, self.text)
        assert found is not None, self.text
        return found

    def press_ctrl_c(self) -> None:
        """A terminal tells all processes of the session that are in the foreground."""
        os.killpg(self._process.pid, signal.SIGINT)

    def end(self) -> int:
        """Its exit code, once it and all that it has started are gone."""
        code = self._process.wait(LIMIT_S)
        self.wait_for(lambda: not self.is_anybody_left(), "the end of all processes")
        return code

    def is_anybody_left(self) -> bool:
        try:
            os.killpg(self._process.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_anybody_left():
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def assert_closed(address: re.Match[str]) -> None:
    with socket.socket() as probe, pytest.raises(ConnectionRefusedError):
        probe.connect((address[1], int(address[2])))


def test_without_java_it_says_what_to_do_and_shows_the_rest(tmp_path: Path) -> None:
    with Demo(tmp_path, "--seconds", "3", JAVA_HOME=str(tmp_path)) as demo:
        assert demo.end() == 0, demo.text
        (line,) = [line for line in demo.text.splitlines() if line.startswith("No pipelines and no report")]
        assert "set it to a Java 17 or later" in line
        rows = {name: demo.text.count(name) for name in ("orders", "search", "reports", "dashboard")}
        assert all(rows.values()), demo.text
        assert_closed(demo.wait_for_text(BROKER.pattern))
    assert list(demo.temporary.iterdir()) == []
    assert not demo.out.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_when_it_is_interrupted_nothing_is_left(tmp_path: Path, number: signal.Signals) -> None:
    with Demo(tmp_path, "--seconds", "600", "--no-spark") as demo:
        address = demo.wait_for_text(BROKER.pattern)
        demo.wait_for(lambda: any(demo.temporary.glob("*/data/orders-0")), "traffic")
        if number is signal.SIGINT:
            demo.press_ctrl_c()
        else:
            os.kill(demo._process.pid, number)
        assert demo.end() == 130, demo.text
        assert "Stopped; nothing is left behind." in demo.text
        assert "Traceback" not in demo.text
        assert_closed(address)
    assert list(demo.temporary.iterdir()) == []
    assert not demo.out.exists()


def need_java() -> None:
    from barnabas.spark.java_runtime import JavaMissingError, require_java

    try:
        require_java()
    except JavaMissingError as error:
        unavailable(str(error))


@pytest.mark.nightly
def test_the_whole_of_it(tmp_path: Path) -> None:
    need_java()
    with Demo(tmp_path, "--seconds", "14") as demo:
        assert demo.end() == 0, demo.text
        page = demo.out / "report.html"
        assert page.resolve().as_uri() in demo.text
        assert "reports (noisy)" in demo.text
    assert list(demo.temporary.iterdir()) == []
    assert sorted(one.name for one in demo.out.iterdir()) == ["charts", "report.html", "tables"]
    assert "nothing yet" not in page.read_text()
    shown = subprocess.run(
        [sys.executable, "-m", "barnabas.cli.main", "report", "--out", str(demo.out / "tables"), "--json"],
        check=True,
        capture_output=True,
        timeout=LIMIT_S,
    )
    summary = json.loads(shown.stdout)
    tenants = {one["tenant"]: one for one in summary["tenants"]}
    # The noisy one was held back, those beside it were not.
    assert tenants["reports"]["throttle_ms"] > 0
    assert tenants["orders"]["throttle_ms"] == tenants["search"]["throttle_ms"] == 0
    advice = {one["who"]: one["verdict"] for one in summary["advice"]}
    assert advice == {"orders": "well-behaved", "search": "well-behaved", "reports": "noisy"}
    assert {one["software"] for one in summary["clients"]} == {"barnabas", "confluent-kafka-python"}
    assert summary["dead_letters"] == 0


@pytest.mark.nightly
def test_ctrl_c_while_spark_is_at_work(tmp_path: Path) -> None:
    need_java()
    with Demo(tmp_path, "--seconds", "4") as demo:
        demo.wait_for_text("requests: starting")
        demo.press_ctrl_c()
        assert demo.end() == 130, demo.text
        assert "Traceback" not in demo.text
    assert list(demo.temporary.iterdir()) == []
    assert not demo.out.exists()
