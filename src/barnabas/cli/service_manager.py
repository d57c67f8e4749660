"""Notifies systemd, or another supervisor with its protocol, of the broker's state (sd_notify).

The supervisor names a datagram socket in ``$NOTIFY_SOCKET``. With ``Type=notify`` in a unit it waits for READY before
it starts dependent units. With ``WatchdogSec=`` it restarts a broker that sends no message for that long.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import MutableMapping
from typing import Final, Self

logger = logging.getLogger(__name__)

EXTENSION_US: Final = 60_000_000
"""How much longer a start may take after each report of progress. Recovery after a crash may take minutes."""


class ServiceManager:
    """Sends messages to a supervisor. Sending never blocks, and a lost message is not an error."""

    def __init__(self, address: str, watchdog_s: float | None = None) -> None:
        # A leading "@" stands for the zero byte of an abstract socket address.
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self.watchdog_s = watchdog_s
        """The maximum time between two messages; None without a watchdog."""

    @classmethod
    def of(cls, environment: MutableMapping[str, str]) -> Self | None:
        """Returns the supervisor named in the environment, or None. Removes its variables: children do not notify."""
        address = environment.pop("NOTIFY_SOCKET", "")
        limit, process = environment.pop("WATCHDOG_USEC", ""), environment.pop("WATCHDOG_PID", "")
        if not address.startswith(("/", "@")):
            return None
        mine = not process or process == str(os.getpid())
        return cls(address, int(limit) / 1e6 if mine and limit.isdecimal() and int(limit) > 0 else None)

    def ready(self, status: str) -> None:
        self._send("READY=1", f"STATUS={status}")

    def stopping(self) -> None:
        self._send("STOPPING=1", "STATUS=Shutting down")

    def progress(self, status: str) -> None:
        """Reports progress of a long start, and asks for more time."""
        self._send(f"STATUS={status}", f"EXTEND_TIMEOUT_USEC={EXTENSION_US}")

    def alive(self) -> None:
        self._send("WATCHDOG=1")

    def _send(self, *lines: str) -> None:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            logger.warning("Cannot notify the service manager at %s: %s", self._address.replace("\0", "@"), error)
