"""The default data directory."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ENVIRONMENT = "BARNABAS_DATA_DIR"


def default_data_dir() -> Path:
    """Returns the user's state directory, which holds data that is kept between runs but need not be backed up."""
    told = os.environ.get(ENVIRONMENT)
    if told:
        return Path(told).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "barnabas"
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "barnabas"
