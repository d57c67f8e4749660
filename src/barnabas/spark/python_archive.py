"""Adds byte code to the archives from which Spark's Python processes import PySpark.

Spark puts ``python/lib/pyspark.zip`` of its own directory at the front of the module path of each Python process that
it starts: the planning process of a stream, daemons, workers. The archive has source code only, and Python keeps no
byte code of modules in archives. So each of these processes compiles PySpark anew, which takes half a second of a core:
longer than the rest of the start of a stream.

`compile_archive` adds the byte code once. Python takes it if it is of its own version, and compiles the source
otherwise. So an archive with byte code of another version is as good as one without.
"""

from __future__ import annotations

import marshal
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from importlib.util import MAGIC_NUMBER, find_spec, source_hash
from pathlib import Path
from typing import Final
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

_UNCHECKED_HASH: Final = (1).to_bytes(4, "little")
"""The kind of byte code that is not compared with its source (PEP 552): the file that has both is replaced as a whole.
Byte code with a time would be of no use in a process with another time zone, because times in archives are local."""
_HEAD_BYTES: Final = 16


def archives_of(environment: Mapping[str, str]) -> list[Path]:
    """Returns the archives of the Spark that sessions of this environment start; none if Spark has none."""
    home = environment.get("SPARK_HOME")
    if home is None:
        spec = find_spec("pyspark")
        if spec is None or spec.origin is None:
            return []
        home = str(Path(spec.origin).parent)
    return sorted(Path(home).glob("python/lib/*.zip"))


def is_compiled(archive: Path) -> bool:
    """Returns whether an archive has the byte code of all its modules for this version of Python."""
    with ZipFile(archive) as opened:
        return not any(True for _ in _without_byte_code(opened))


def compile_archive(archive: Path) -> int:
    """Adds the byte code of modules that have none for this version of Python; returns how many there were.

    The file is replaced at once. What was in it stays at its place, so processes that have looked up a module in the
    old file can still read it from the new one.
    """
    handle, name = tempfile.mkstemp(prefix=f"{archive.name}.", dir=archive.parent)
    os.close(handle)
    made = Path(name)
    try:
        shutil.copyfile(archive, made)
        shutil.copymode(archive, made)
        with ZipFile(made, "a") as opened, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the source; and about byte code of two versions
            found = list(_without_byte_code(opened))
            for module in found:
                _add_byte_code(opened, module, f"{archive}{os.sep}{module.filename}")
        if found:
            made.replace(archive)
    finally:
        made.unlink(missing_ok=True)
    return len(found)


def _without_byte_code(archive: ZipFile) -> Iterator[ZipInfo]:
    names = set(archive.namelist())
    for module in archive.infolist():
        # PySpark's own tests are most of the archive, and no process of a query imports them.
        if not module.filename.endswith(".py") or "/tests/" in module.filename:
            continue
        compiled = f"{module.filename}c"
        if compiled not in names or not _is_current(archive, compiled):
            yield module


def _is_current(archive: ZipFile, compiled: str) -> bool:
    with archive.open(compiled) as opened:
        return opened.read(_HEAD_BYTES).startswith(MAGIC_NUMBER + _UNCHECKED_HASH)


def _add_byte_code(archive: ZipFile, module: ZipInfo, path: str) -> None:
    source = archive.read(module)
    code = compile(source, path, "exec", dont_inherit=True)
    entry = ZipInfo(f"{module.filename}c", module.date_time)
    entry.compress_type = ZIP_DEFLATED
    entry.external_attr = module.external_attr
    archive.writestr(entry, MAGIC_NUMBER + _UNCHECKED_HASH + source_hash(source) + marshal.dumps(code))
