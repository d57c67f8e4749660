"""Spark runs in a Java virtual machine; this finds one, or says in one line what to do.

Without a look beforehand PySpark fails with a page of shell script and class names when Java is missing or too old.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MINIMUM_VERSION: Final = 17
"""What Spark 4 is compiled for."""
PLACES: Final = ("/usr/lib/jvm", "/Library/Java/JavaVirtualMachines", "/opt/homebrew/opt", "/usr/local/opt")
"""Where distributions put Java without telling the shell."""
_VERSION: Final = re.compile(r'version "(\d+)(?:\.(\d+))?')
_SECONDS: Final = 20


class JavaMissingError(Exception):
    """There is no Java that Spark can run on; the message says what to do."""


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """One installation of Java."""

    executable: Path
    version: int
    """17, 21 and so on; also of those that call themselves 1.8."""

    @property
    def home(self) -> Path:
        """What ``JAVA_HOME`` is set to for it."""
        return self.executable.resolve().parent.parent


def require_java(environment: Mapping[str, str] = os.environ) -> JavaRuntime:
    """A Java that Spark can run on: of ``JAVA_HOME``, of the path, or of a usual place; the first that is new enough.

    ``JAVA_HOME`` counts even if it is too old, as it is what Spark would take: somebody has to change it.
    """
    home = environment.get("JAVA_HOME")
    if home:
        found = java_at(Path(home) / "bin" / "java")
        if found is None:
            raise JavaMissingError(
                f"JAVA_HOME is {home}, where there is no Java: set it to a Java {MINIMUM_VERSION} or later"
            )
        if found.version < MINIMUM_VERSION:
            raise JavaMissingError(
                f"JAVA_HOME is {home}, which is Java {found.version}: Spark needs {MINIMUM_VERSION} or later"
            )
        return found
    too_old = None
    for executable in _candidates(environment):
        found = java_at(executable)
        if found is not None and found.version >= MINIMUM_VERSION:
            return found
        too_old = too_old or found
    have = f"there is only Java {too_old.version} ({too_old.executable})" if too_old else "there is no Java here"
    raise JavaMissingError(
        f"Spark needs Java {MINIMUM_VERSION} or later, and {have}: install it (Debian, Ubuntu: "
        f"sudo apt-get install openjdk-{MINIMUM_VERSION}-jre-headless; Fedora: sudo dnf install "
        f"java-{MINIMUM_VERSION}-openjdk-headless; macOS: brew install openjdk@{MINIMUM_VERSION}) or set JAVA_HOME"
    )


def java_at(executable: Path) -> JavaRuntime | None:
    """What is there; None if it is no Java."""
    try:
        said = subprocess.run(  # noqa: S603 - a program that the user has told of
            [str(executable), "-version"], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = parse_version(said.stderr + said.stdout)
    return None if version is None else JavaRuntime(executable, version)


def parse_version(text: str) -> int | None:
    """
    >>> parse_version('openjdk version "17.0.15" 2025-04-15'), parse_version('java version "1.8.0_402"')
    (17, 8)
    >>> parse_version("command not found")
    """
    match = _VERSION.search(text)
    if match is None:
        return None
    major = int(match[1])
    return int(match[2] or 0) if major == 1 else major


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    on_path = shutil.which("java", path=environment.get("PATH"))
    if on_path:
        yield Path(on_path)
    for place in PLACES:
        # The newest first, as far as names tell.
        for pattern in ("*/bin/java", "*/Contents/Home/bin/java"):
            yield from sorted(Path(place).glob(pattern), reverse=True)
