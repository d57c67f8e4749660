"""The clean shutdown marker of a log directory, ``.kafka_cleanshutdown``.

With it, all logs below are complete on disk and need no recovery, which reads every byte since the last flush. Startup
deletes it before any log is opened, so that it does not exist after a later crash.

It also has the broker epoch of the last registration. At the next registration, the epoch proves to the controller that
nothing was lost: the replicas of a broker without it may lack acknowledged records (KIP-966).

    {"version":0,"brokerEpoch":8141}
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Final

from barnabas.log.dirs.durable_file import replace_file, sync_directory
from barnabas.log.storage_errors import disk_access

logger = logging.getLogger(__name__)

CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"
CURRENT_VERSION: Final = 0


class CleanShutdownFile:
    """Writes, reads and deletes the marker of one log directory."""

    def __init__(self, log_dir: Path) -> None:
        self.path = log_dir / CLEAN_SHUTDOWN_FILE

    def write(self, broker_epoch: int) -> None:
        """Writes the marker, once all logs are complete. A broker that was never registered has epoch -1."""
        content = json.dumps({"version": CURRENT_VERSION, "brokerEpoch": broker_epoch}, separators=(",", ":"))
        with disk_access("write", self.path):
            replace_file(self.path, content.encode())

    def read(self) -> int | None:
        """Returns the broker epoch; None if the marker is missing, old or broken. Recovery depends on `exists`."""
        try:
            content = json.loads(self.path.read_bytes())
            epoch = content["brokerEpoch"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            logger.debug("no broker epoch in %s: %s", self.path, error)
            return None
        if not isinstance(epoch, int) or isinstance(epoch, bool) or not -(1 << 63) <= epoch < 1 << 63:
            logger.debug("no broker epoch in %s: it is %r", self.path, epoch)
            return None
        return epoch

    def exists(self) -> bool:
        return self.path.exists()

    def delete(self) -> None:
        """Deletes the marker durably: if it came back after a power cut, recovery would be skipped."""
        with disk_access("delete", self.path):
            self.path.unlink(missing_ok=True)
            sync_directory(self.path.parent)

    def __repr__(self) -> str:
        return f"CleanShutdownFile({str(self.path)!r})"
