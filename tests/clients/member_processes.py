"""Members of a group in processes of their own, and what they say they have."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

_SCRIPT: Final = Path(__file__).with_name("group_member.py")


class Member:
    """A process. What it says is collected as it comes."""

    def __init__(
        self, kind: str, bootstrap: str, group: str, topic: str, *, command: Sequence[str] | None = None
    ) -> None:
        """``command`` is another program that says the same things."""
        self.kind = kind
        self._changed = threading.Condition()
        """Guards the fields below; nothing is called while it is held."""
        self.records: list[tuple[int, int]] = []
        self.partitions: set[int] = set()
        self.held: list[tuple[int, float, float]] = []
        """Partitions that it had, from when to when."""
        self._since: dict[int, float] = {}
        self.said: list[dict[str, Any]] = []
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", str(_SCRIPT), kind, bootstrap, group, topic]
            if command is None
            else command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            with self._changed:
                self.said.append(said)
                if said["event"] == "record":
                    self.records.append((said["partition"], said["offset"]))
                elif said["event"] == "assigned":
                    for number in said["partitions"]:
                        self._since.setdefault(number, said["time"])
                elif said["event"] == "revoked":
                    self._give_up(said["partitions"], said["time"])
                self.partitions = set(self._since)
                self._changed.notify_all()

    def _give_up(self, partitions: list[int], at: float) -> None:
        for number in partitions:
            since = self._since.pop(number, None)
            if since is not None:
                self.held.append((number, since, at))

    def wait_until(self, condition: Any, seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        with self._changed:
            while not condition(self):
                remaining = deadline - time.monotonic()
                if remaining <= 0 or self._process.poll() is not None:
                    raise AssertionError(f"{self.kind} has {sorted(self.partitions)}; it said {self.said[-20:]}")
                self._changed.wait(min(remaining, 0.2))

    def kill(self) -> None:
        """No last words."""
        self._process.kill()
        self._end(time.monotonic())

    def close(self) -> None:
        """Leaves the group in order."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._end(None)

    def _end(self, at: float | None) -> None:
        self._process.wait(120)
        self._reader.join(120)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        with self._changed:
            self._give_up(list(self._since), time.monotonic() if at is None else at)
            self.partitions = set()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None


def overlaps(members: list[Member]) -> list[tuple[int, str, str]]:
    """Partitions that two members had at once."""
    found = []
    for at, one in enumerate(members):
        for other in members[at + 1 :]:
            found += [
                (number, one.kind, other.kind)
                for number, start, end in one.held
                for other_number, other_start, other_end in other.held
                if number == other_number and max(start, other_start) < min(end, other_end)
            ]
    return found
