"""A broker one of whose log directories can be made slow: writes and syncs below it take as long as a file says.

    slow_disk_broker.py DIRECTORY CONTROL start --data-dir ...

While the file ``CONTROL/delay`` exists, each write and sync of a file below DIRECTORY takes so many seconds. Each one
adds a ``b`` to ``CONTROL/count`` when it begins, and an ``e`` when it ends.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def slow_down(directory: Path, control: Path) -> None:
    """Has to be called before any module of the broker is imported: some keep the functions that they call."""
    below = f"{directory.resolve()}{os.sep}"
    delay_file = control / "delay"
    count = os.open(control / "count", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    write = os.write

    def delay() -> float:
        try:
            return float(delay_file.read_text())
        except FileNotFoundError:
            return 0

    def slowed(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(fd: int, *arguments: Any) -> Any:
            delay_s = delay()
            if delay_s and str(Path(f"/proc/self/fd/{int(fd)}").readlink()).startswith(below):
                write(count, b"b")
                time.sleep(delay_s)
                write(count, b"e")
            return function(fd, *arguments)

        return call

    for name in ("pwrite", "pwritev", "fsync", "fdatasync"):
        setattr(os, name, slowed(getattr(os, name)))


if __name__ == "__main__":
    slow_down(Path(sys.argv[1]), Path(sys.argv[2]))
    del sys.argv[1:3]
    from barnabas.cli.main import main

    main()
