"""How many files a broker may have open."""

from __future__ import annotations

import logging
import sys

logger = logging.getLogger(__name__)

MACOS_LIMIT = 10_240
"""What macOS accepts although it may say "unlimited"."""


def allow_open_files() -> None:
    """Raises the limit of this process as far as it may go without asking anybody.

    Every segment is an open file, and so is every connection. Shells hand down a soft limit of 1,024 or less, for the
    sake of programs from the last century that count descriptors in bit sets; a Java virtual machine raises it, too.
    """
    if sys.platform == "win32":
        return
    import resource  # noqa: PLC0415 - there is none on Windows

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = hard
    if sys.platform == "darwin":
        wanted = MACOS_LIMIT if hard == resource.RLIM_INFINITY else min(hard, MACOS_LIMIT)
    if soft in (wanted, resource.RLIM_INFINITY):
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as error:
        logger.warning("The limit of %d open files cannot be raised: %s", soft, error)
