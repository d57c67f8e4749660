"""Runs this package on every other version of Python that it claims to support: ``make versions``.

    python tests/versions.py            a smoke test on each version that is found here
    python tests/versions.py --full     the unit and client tests on each, with compiled extensions

An interpreter is looked for on the path (``python3.13``), among pyenv's versions, and for 3.14 in the jar with a whole
CPython that ``make`` fetches with Maven on Linux. A version that is not found is skipped, with a line that says so.
The smoke test installs the core dependencies only, in the pinned versions, and runs the sources as pure Python: it
starts a broker with ``python -m barnabas start``, produces, consumes and stops the broker.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = ("3.12", "3.13", "3.14")
"""All that the classifiers name, but for 3.11, on which everything else in CI runs."""
JARS = ROOT / "target" / "python-jars"
IN_JAR = "org/bytedeco/cpython/linux-x86_64/"
LIMIT_S = 60.0
RECORDS = 1_000
COPIED = ("src", "tests", "benchmarks", "examples", "docs", "tools", "deploy", ".ci", ".github")
COPIED_FILES = (
    "pyproject.toml",
    "setup.py",
    "MANIFEST.in",
    ".dockerignore",
    ".pre-commit-config.yaml",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "mkdocs.yml",
    "constraints.txt",
    "README.md",
    "CHANGELOG.md",
    "LICENSE",
    "NOTICE",
    "Makefile",
)


def find_interpreter(version: str, target: Path) -> Path | None:
    """An interpreter of this version that runs; pyenv's shims, for one, are on the path and may not."""
    candidates = [Path(found) for found in [shutil.which(f"python{version}")] if found]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates += sorted(pyenv.glob(f"{version}.*/bin/python"), reverse=True)
    candidates += [unpack(jar, target) / "bin" / f"python{version}" for jar in JARS.glob(f"cpython-{version}.*.jar")]
    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    for candidate in candidates:
        done = subprocess.run([candidate, "-c", program], capture_output=True, text=True, check=False, timeout=LIMIT_S)
        if done.stdout.strip() == version:
            return candidate
    return None


def unpack(jar: Path, target: Path) -> Path:
    """The directory of the interpreter in a jar."""
    directory = target / jar.stem
    if not directory.exists():
        unfinished = Path(tempfile.mkdtemp(prefix=jar.stem, dir=target))
        with zipfile.ZipFile(jar) as archive:
            archive.extractall(unfinished, [name for name in archive.namelist() if name.startswith(IN_JAR)])
        for program in (unfinished / IN_JAR / "bin").iterdir():
            program.chmod(0o755)
        unfinished.rename(directory)
    return directory / IN_JAR


def environment(version: str, interpreter: Path, requirements: list[str], target: Path, name: str) -> Path:
    """The interpreter of a virtual environment with these requirements, made anew when any of them has changed."""
    directory = target / f"{name}-{version}"
    constraints = ROOT / "constraints.txt"
    parts = [str(interpreter), *requirements, constraints.read_text(encoding="utf-8")]
    stamp, wanted = directory / ".made-of", hashlib.sha256("\n".join(parts).encode()).hexdigest()
    python = directory / "bin" / "python"
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    shutil.rmtree(directory, ignore_errors=True)
    subprocess.run([interpreter, "-m", "venv", "--without-pip", directory], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-c", constraints, *requirements], check=True)
    stamp.write_text(wanted)
    return python


def smoke_test(version: str, interpreter: Path, target: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    python = environment(version, interpreter, project["dependencies"], target, "smoke")
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONWARNINGS": "error", "PYTHONDONTWRITEBYTECODE": ""}
    subprocess.run([python, __file__, "--smoke"], check=True, env=env, timeout=5 * LIMIT_S)


def produce_and_consume() -> None:
    """The smoke test itself, run by the interpreter that is tested."""
    from barnabas import KafkaConsumer, KafkaProducer

    with tempfile.TemporaryDirectory() as directory:
        ready = Path(directory) / "ready"
        options = ["--port=0", f"--data-dir={directory}/data", f"--ready-file={ready}", "--quiet"]
        broker = subprocess.Popen([sys.executable, "-m", "barnabas", "start", *options])
        try:
            deadline = time.monotonic() + LIMIT_S
            while not ready.exists():
                if broker.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"the broker does not start: exit code {broker.poll()}")
                time.sleep(0.02)
            address = ready.read_text().strip()
            with KafkaProducer(bootstrap_servers=address) as producer:
                sent = [producer.send("smoke", b"%d" % number, key=b"k") for number in range(RECORDS)]
                assert [future.get(timeout=LIMIT_S).offset for future in sent] == list(range(RECORDS))
            for group in (None, "smoke"):
                seen: list[bytes | None] = []
                with KafkaConsumer(
                    "smoke", bootstrap_servers=address, group_id=group, auto_offset_reset="earliest"
                ) as consumer:
                    while len(seen) < RECORDS:
                        records = consumer.poll(timeout_ms=1_000 * LIMIT_S)
                        assert records, f"{len(seen)} of {RECORDS} records within {LIMIT_S:g} s"
                        seen += [record.value for record in records]
                assert seen == [b"%d" % number for number in range(RECORDS)]
        finally:
            broker.send_signal(signal.SIGTERM)
            code = broker.wait(LIMIT_S)
        assert code == 0, f"the broker ended with {code}"


def requirements_of(extra: str, extras: dict[str, list[str]]) -> set[str]:
    """What an extra installs, with the extras of this project that it names; others may need compilers or libraries."""
    found = set()
    for requirement in extras[extra]:
        if requirement.startswith("barnabas["):
            for named in requirement.removeprefix("barnabas[").removesuffix("]").split(","):
                found |= requirements_of(named, extras)
        else:
            found.add(requirement)
    return found


def full_test(version: str, interpreter: Path, target: Path, pytest_arguments: list[str]) -> None:
    """The unit and client tests, in a copy of the project with extensions for this version."""
    tree = target / f"tree-{version}"
    tree.mkdir(exist_ok=True)
    for name in COPIED:
        shutil.rmtree(tree / name, ignore_errors=True)
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.c"))
    for name in COPIED_FILES:
        shutil.copy2(ROOT / name, tree / name)
    if not (tree / "target").exists():
        (tree / "target").symlink_to(ROOT / "target")  # Java's jars
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements = sorted({*project["dependencies"], *requirements_of("dev", project["optional-dependencies"])})
    python = environment(version, interpreter, requirements, target, "full")
    subprocess.run([python, "setup.py", "--quiet", "build_ext", "--inplace"], cwd=tree, check=True)
    # Installed, because some tests run other programs that find the plug-in by its entry point.
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run(
        [*pip, "--no-deps", "--no-build-isolation", "-e", "."],
        cwd=tree,
        check=True,
        env={**os.environ, "BARNABAS_PURE": "1"},  # what was built above is in the tree
    )
    command = [str(python), "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", "-m", "not nightly"]
    subprocess.run([*command, *(pytest_arguments or ["tests/unit", "tests/clients"])], cwd=tree, check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the unit and client tests, not only the smoke test")
    parser.add_argument("--smoke", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--only", action="append", choices=VERSIONS, help="just this version; may be repeated")
    parser.add_argument("--target", type=Path, default=ROOT / "target" / "versions", help="where environments are made")
    parser.add_argument("tests", nargs="*", help="with --full: arguments for pytest")
    options = parser.parse_args()
    if options.smoke:
        produce_and_consume()
        return 0
    target: Path = options.target.resolve()
    target.mkdir(parents=True, exist_ok=True)
    failed = []
    for version in options.only or VERSIONS:
        begin = time.monotonic()
        interpreter = find_interpreter(version, target)
        if interpreter is None:
            print(f"Python {version}: skipped, there is no interpreter on the path or in pyenv", flush=True)
            continue
        try:
            if options.full:
                full_test(version, interpreter, target, options.tests)
            else:
                smoke_test(version, interpreter, target)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            failed.append(version)
            print(f"Python {version}: FAILED ({interpreter}): {error}", flush=True)
        else:
            print(f"Python {version}: ok ({interpreter}), {time.monotonic() - begin:.1f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
