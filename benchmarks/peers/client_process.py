"""A client in a process of its own: nothing of the harness is in it, and it ends in time."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, Final

from benchmarks.broker_process import source_environment

TIMEOUT_S: Final = 120


def run_client(module: str, *arguments: str) -> dict[str, Any]:
    """What a module prints as JSON when it is run."""
    result = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
        env=source_environment(),
    )
    if result.returncode != 0:
        raise RuntimeError(f"{module} {' '.join(arguments)}\n{result.stdout}\n{result.stderr}")
    report: dict[str, Any] = json.loads(result.stdout)
    return report
