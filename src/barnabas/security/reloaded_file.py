"""A file whose contents are parsed again when it has changed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from barnabas.common.errors import InvalidConfigurationError

log = logging.getLogger(__name__)

T = TypeVar("T")


class ReloadedFile(Generic[T]):
    """Keeps the parsed contents of a file.

    The constructor raises the errors of ``parse``. Later, if a changed file cannot be parsed, the last contents stay
    valid, and the reason is logged once.
    """

    def __init__(self, path: str | Path, parse: Callable[[Path], T]) -> None:
        """``parse`` raises `InvalidConfigurationError` for a file that it cannot read."""
        self.path = Path(path)
        self._parse = parse
        self._version = self._current_version()
        self._contents = parse(self.path)

    def contents(self) -> T:
        """Returns the contents of the file. Reads it again if it has changed."""
        version = self._current_version()
        if version != self._version:
            self._version = version
            try:
                self._contents = self._parse(self.path)
                log.info("Read %s again", self.path)
            except InvalidConfigurationError as error:
                log.error("Keeping the last contents of %s: %s", self.path, error)
        return self._contents

    def _current_version(self) -> tuple[int, int, int] | None:
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino
