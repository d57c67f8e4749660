"""The limit of open files of a broker."""

from __future__ import annotations

import logging
import sys

logger = logging.getLogger(__name__)

MACOS_LIMIT = 10_240
"""The limit that macOS accepts even if it reports "unlimited"."""


def allow_open_files() -> None:
    """Raises the soft limit of this process as far as it may without privileges.

    Every segment and every connection is an open file. Shells pass on a soft limit of 1,024 or less, for programs that
    keep descriptors in fixed-size bit sets. A Java virtual machine raises the limit too.
    """
    if sys.platform == "win32":
        return
    import resource  # there is none on Windows

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = hard
    if sys.platform == "darwin":
        wanted = MACOS_LIMIT if hard == resource.RLIM_INFINITY else min(hard, MACOS_LIMIT)
    if soft in (wanted, resource.RLIM_INFINITY):
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as error:
        logger.warning("Cannot raise the limit of %d open files: %s", soft, error)
