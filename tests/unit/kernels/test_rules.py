"""The rules of compiled code: where it is, who chooses it, and what it may not touch."""

from __future__ import annotations

import re
from pathlib import Path

from barnabas import _kernels
from barnabas.protocol.api_keys import ApiKey

PACKAGE = Path(_kernels.__file__).parents[1]
KERNELS = PACKAGE / "_kernels"


def sources(pattern: str) -> dict[str, str]:
    paths = {path.relative_to(PACKAGE).as_posix(): path for path in PACKAGE.rglob(pattern)}
    return {name: path.read_text() for name, path in paths.items()}


def test_compiled_code_is_a_kernel() -> None:
    assert {path.stem for path in (KERNELS / "compiled").glob("*.pyx")} == set(_kernels.__all__)
    assert not [name for name in sources("*.pyx") if not name.startswith("_kernels/compiled/")]


def test_every_kernel_has_a_twin() -> None:
    assert not [name for name in _kernels.__all__ if not (KERNELS / "pure" / f"{name}.py").is_file()]


def test_there_is_one_chooser() -> None:
    looks = [name for name, text in sources("*.py").items() if re.search(r"environ.*BARNABAS_PURE", text)]
    assert looks == ["_kernels/__init__.py"]
    tries = [name for name, text in sources("*.py").items() if "_kernels.compiled" in text]
    assert tries == [], "import kernels through barnabas._kernels"


def test_compiled_code_and_twins_stay_small() -> None:
    """Whoever needs more room shares what is there, or hands a case without a measured figure back to Python."""
    assert sum(text.count("\n") for text in sources("*.pyx").values()) <= 4_500
    assert sum(path.read_text().count("\n") for path in (KERNELS / "pure").glob("*.py")) <= 2_500


def test_every_method_that_closes_a_batch_has_a_critical_section() -> None:
    """Without it, an append on another thread of a free-threaded interpreter ends after the batch was closed."""
    text = _code((KERNELS / "compiled" / "append_state.pyx").read_text())
    methods = re.findall(r"^    ((?:@[\w.]+\n    )*)def (\w+)\(.*\n((?:        .*\n|\n)*)", text, re.MULTILINE)
    closing = {name: decorators for decorators, name, body in methods if "self._open = False" in body}
    assert closing.keys() == {"close_for_appends", "take"}
    assert [name for name, decorators in closing.items() if "@cython.critical_section" not in decorators] == []


def test_records_are_walked_in_one_place() -> None:
    readers = [
        name for name, text in sources("*.p[yx][xd]").items() if re.search(r"\bget_varlong\(|short_number\(", text)
    ]
    assert sorted(readers) == ["_kernels/compiled/record_walk.pxd", "_kernels/compiled/varint.pxd"]


def test_no_compiled_module_touches_private_attributes_of_others() -> None:
    """``other._name``, where other is not self. A class may look at another object of its own kind."""
    touched = [
        f"{name}: {found.group(0)}"
        for name, text in sources("*.pyx").items()
        for found in re.finditer(r"(?<![\w.])(?!self\b|cls\b|other\b)([A-Za-z_]\w*|\))\._[a-z]\w*", _code(text))
        if not found.group(0).startswith(("barnabas._kernels", "libc.", "cpython."))
    ]
    assert touched == []


def _code(text: str) -> str:
    """Without comments and documentation."""
    return re.sub(r'""".*?"""|#[^\n]*', "", text, flags=re.DOTALL)


def test_byte_access_is_defined_once() -> None:
    definitions = [
        name
        for name, text in sources("*.p[yx][xd]").items()
        if re.search(r"cdef inline .*\b(int16_at|int32_at|int64_at|put_int32)\(", text)
    ]
    assert definitions == ["_kernels/compiled/octets.pxd"]


# A wire layout is which fields a request or a response has, in which version, in which order. Only the declarations in
# barnabas.protocol know that. Compiled code that repeated it would keep the old layout when a version is added.
# The request header, which has no API and one layout before its tagged fields, is parsed in `headers`.


def test_no_compiled_module_names_an_api() -> None:
    names = {api.name for api in ApiKey} | {
        name
        for api in ApiKey
        for stem in [api.name.title().replace("_", "")]
        for name in (stem, f"{stem}Request", f"{stem}Response")
    }
    found = [
        f"{name}: {word}"
        for name, text in sources("*.p[yx][xd]").items()
        for word in re.findall(r"\w+", _code(text))
        if word in names
    ]
    assert found == []


def test_no_compiled_module_depends_on_a_version() -> None:
    """No comparison with a version, except with the one from which on the caller says that headers are flexible.

    `codec` asks the declaration whether a version is in one of its ranges.
    """
    compared = [
        f"{name}: {line.strip()}"
        for name, text in sources("*.p[yx][xd]").items()
        for line in _code(text).splitlines()
        if re.search(r"version\s*(?:[<>]=?|[!=]=|in\b)", line)
        if not (name.endswith("/codec.pyx") and re.search(r"version in (?:declared|message)\.", line))
    ]
    assert compared == ["_kernels/compiled/headers.pyx: if version >= <int>flexible_from:"]


def test_the_layout_of_a_batch_header_is_written_once() -> None:
    code = {name: _code(text) for name, text in sources("*.p[yx][xd]").items()}
    numbers = [name for name, text in code.items() if re.search(r"int(?:16|32|64)_at\([^()]*\+ \d", text)]
    assert numbers == ["_kernels/compiled/octets.pxd"], "use the names of batch_header.pxd"
    sizes = [name for name, text in code.items() if re.search(r"(?<!BATCH_)\bHEADER_SIZE = ", text)]
    assert sizes == ["_kernels/compiled/batch_header.pxd"]
