"""Installs this project and one of its extras into a virtual environment, and shows what it does.

    python3.11 tools/environment.py .venv core      what `make run` needs: a broker, clients, the command line
    python3.11 tools/environment.py .venv demo      what `make demo` needs, on top of that
    python3.11 tools/environment.py .venv dev       what `make test` needs, on top of that

It uses uv, which takes a third of pip's time, and pip itself where uv cannot be had or fails. uv reads none of pip's
settings, so its index, its certificates and its proxy are taken from ``pip config``: a machine on which pip works by a
mirror needs nothing else. All versions are those of ``constraints.txt``.
"""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
CONSTRAINTS: Final = "constraints.txt"
CORE: Final = "core"
"""No extra."""
WORK: Final = "and compiling the kernels; this may take some minutes"
UV_SETTINGS: Final = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "no-index": "UV_NO_INDEX",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "timeout": "UV_HTTP_TIMEOUT",
}
"""Settings of pip, and the variables by which uv is given the same."""
COMMA_SEPARATED: Final = frozenset({"find-links"})
"""Lists that uv wants separated by commas. The others are separated by spaces, as pip's are."""
SCOPES: Final = ("global", "user", "site", "install", ":env:")
"""Where pip takes a setting from; the last one that has it wins."""


def uv_variables(pip_config: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Translates the output of ``pip config list`` into variables for uv. Those that are set already are kept.

    >>> uv_variables("global.index-url='https://mirror/simple'\\n:env:.cert='/etc/ca.pem'", {})
    {'UV_DEFAULT_INDEX': 'https://mirror/simple', 'SSL_CERT_FILE': '/etc/ca.pem'}
    """
    found: dict[str, tuple[int, str]] = {}
    for line in pip_config.splitlines():
        name, equals, quoted = line.partition("=")
        scope, _, key = name.rpartition(".")
        if not equals or key not in UV_SETTINGS or scope not in SCOPES:
            continue
        rank, (before, _) = SCOPES.index(scope), found.get(key, (-1, ""))
        if rank >= before:
            found[key] = rank, str(ast.literal_eval(quoted))
    variables: dict[str, str] = {}
    for key, (_, value) in found.items():
        parts = value.split()
        if parts and UV_SETTINGS[key] not in environment:
            variables[UV_SETTINGS[key]] = ("," if key in COMMA_SEPARATED else " ").join(parts)
    return variables


def are_kernels_built(source: Path) -> bool:
    """Returns whether every kernel is compiled for this interpreter, later than any of their sources has changed."""
    sources = [path for pattern in ("*.pyx", "*.pxd", "*.h") for path in source.rglob(pattern)]
    changed = max((path.stat().st_mtime for path in sources), default=0.0)
    suffix = f".cpython-{sys.version_info.major}{sys.version_info.minor}"
    built = [list(path.parent.glob(f"{path.stem}{suffix}*.so")) for path in sources if path.suffix == ".pyx"]
    return all(found and found[0].stat().st_mtime >= changed for found in built)


class Environment:
    """A virtual environment, and the ways to install into it."""

    def __init__(self, directory: Path, say: Callable[[str], None], run: Callable[..., int]) -> None:
        self.directory = directory
        self.python = directory / "bin" / "python"
        self._say = say
        self._run = run

    def create(self) -> None:
        """Makes the environment, with pip, if it is not there."""
        if not self.python.exists():
            what = f"creating {self.directory} (Python {sys.version.split()[0]})"
            self._step(what, [sys.executable, "-m", "venv", str(self.directory)])

    def install(self, extra: str) -> None:
        """Installs the project in place, with the packages of the extra."""
        target = "." if extra == CORE else f".[{extra}]"
        if self._pip("installing pip and uv", "--quiet", "pip", "uv", check=False):
            variables = self._uv_variables()
            if variables:
                self._say(f"uv uses pip's settings for {', '.join(sorted(variables))}")
            command = [self._program("uv"), "pip", "install", "--python", str(self.python), "-c", CONSTRAINTS]
            command += ["--build-constraint", CONSTRAINTS, "-e", target]
            built = are_kernels_built(ROOT / "src")
            if not built:
                command += ["--reinstall-package", "barnabas"]  # or uv takes a build that it has cached
            what = f"installing {target} with uv{'' if built else ', ' + WORK}"
            if self._step(what, command, variables, check=False):
                return
            self._say("uv has failed, see above; pip takes over")
        self._pip(f"installing {target} with pip, {WORK}", "-e", target)

    def _uv_variables(self) -> dict[str, str]:
        listed = subprocess.run(
            [self.python, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False, cwd=ROOT
        )
        return uv_variables(listed.stdout, os.environ)

    def _pip(self, what: str, *arguments: str, check: bool = True) -> bool:
        command = [str(self.python), "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]
        # By the variable as well, for the packages that a build needs.
        return self._step(what, [*command, "-c", CONSTRAINTS, *arguments], {"PIP_CONSTRAINT": CONSTRAINTS}, check=check)

    def _program(self, name: str) -> str:
        return str(self.directory / "bin" / name)

    def _step(
        self, what: str, command: Sequence[str], variables: Mapping[str, str] | None = None, check: bool = True
    ) -> bool:
        """Runs a command with a line before and after it. Returns whether it succeeded; raises if it had to."""
        self._say(f"{what} ...")
        begin = time.monotonic()
        code = self._run(list(command), cwd=ROOT, env={**os.environ, **(variables or {})})
        if code == 0:
            self._say(f"done in {time.monotonic() - begin:.0f} s")
        elif check:
            raise SystemExit(f"error: {command[0]} ended with {code}; the lines above say why")
        return code == 0


def say(text: str) -> None:
    print(f"set-up: {text}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directory", type=Path, help="the virtual environment; it is created if it does not exist")
    parser.add_argument("extra", help=f"an extra of pyproject.toml, or {CORE} for none")
    options = parser.parse_args()
    begin = time.monotonic()
    environment = Environment(options.directory.absolute(), say, subprocess.call)
    environment.create()
    environment.install(options.extra)
    say(f"{options.directory} is ready for `{options.extra}`, after {time.monotonic() - begin:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
