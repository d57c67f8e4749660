"""Byte code in the archives of PySpark: a process that imports from one compiles nothing (S12)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from barnabas.cli.doctor_spark import check_archives
from barnabas.cli.main import run
from barnabas.spark.python_archive import archives_of, compile_archive, is_compiled

pytestmark = pytest.mark.mechanism("S12")

PROGRAM = """
import sys
compiled = []
sys.addaudithook(lambda event, arguments: compiled.append(arguments[1]) if event == "compile" else None)
sys.path.insert(0, sys.argv[1])
import package.module
print(package.module.VALUE, sorted({str(name)[len(sys.argv[1]) + 1:] for name in compiled if sys.argv[1] in str(name)}))
"""


BOTH = "True ['package/__init__.py', 'package/module.py']"
NONE = "True []"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    made = tmp_path / "spark" / "python" / "lib" / "library.zip"
    made.parent.mkdir(parents=True)
    with ZipFile(made, "w") as opened:
        opened.writestr("package/__init__.py", "")
        opened.writestr("package/module.py", "VALUE = 'is' is 'is'\n")  # with a warning, as in PySpark
        opened.writestr("package/tests/__init__.py", "not Python!")
        opened.writestr("package/data.txt", "text")
    return made


def imported(archive: Path) -> str:
    """The value of the module, and which modules of the archive were compiled for it."""
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(archive)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_modules_are_compiled_once(archive: Path) -> None:
    assert imported(archive) == BOTH
    assert not is_compiled(archive)
    places = {one.filename: one.header_offset for one in ZipFile(archive).infolist()}
    assert compile_archive(archive) == 2
    assert imported(archive) == NONE
    assert is_compiled(archive)
    with ZipFile(archive) as opened:
        found = {one.filename: one.header_offset for one in opened.infolist()}
    assert found.keys() - places.keys() == {"package/__init__.pyc", "package/module.pyc"}
    assert {name: found[name] for name in places} == places  # for processes that know the old file
    assert compile_archive(archive) == 0
    assert [one.name for one in archive.parent.iterdir()] == [archive.name]


def test_byte_code_of_another_version_is_replaced(archive: Path) -> None:
    with ZipFile(archive, "a") as opened:
        opened.writestr("package/module.pyc", b"another version of Python")
        opened.writestr("package/__init__.pyc", b"")
    assert imported(archive) == BOTH
    assert compile_archive(archive) == 2
    assert imported(archive) == NONE


def test_a_failure_leaves_the_archive_alone(archive: Path) -> None:
    with ZipFile(archive, "a") as opened:
        opened.writestr("package/broken.py", "not Python!")
    before = archive.read_bytes()
    with pytest.raises(SyntaxError):
        compile_archive(archive)
    assert archive.read_bytes() == before
    assert [one.name for one in archive.parent.iterdir()] == [archive.name]


def test_the_archives_are_those_of_the_spark_that_runs(archive: Path) -> None:
    assert archives_of({"SPARK_HOME": str(archive.parents[2])}) == [archive]
    assert {one.name.partition("-")[0] for one in archives_of({})} == {"py4j", "pyspark.zip"}


def test_the_doctor_compiles(
    archive: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = {"SPARK_HOME": str(archive.parents[2])}
    (found,) = check_archives(environment)
    assert (found.status, found.what) == (
        "warning",
        "each Python process of Spark compiles library.zip for half a second",
    )
    monkeypatch.setenv("SPARK_HOME", environment["SPARK_HOME"])
    monkeypatch.setattr("barnabas.cli.doctor_spark.examine_spark", lambda *_: iter(()))
    assert run(["doctor", "spark", "--compile"]) == 0
    (found,) = check_archives(environment)
    version = ".".join(map(str, sys.version_info[:2]))
    assert (found.status, found.what) == ("ok", f"byte code for Python {version} in library.zip")
    capsys.readouterr()
    assert run(["doctor", "--compile"]) == 2
    assert "--compile is for barnabas doctor spark" in capsys.readouterr().err
