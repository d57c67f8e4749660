"""Builds the compiled kernels, which are optional.

Each kernel has a pure-Python twin behind the same interface, so a machine without a C compiler (or without
Cython) still gets a working install: `optional=True` turns a failed compilation into a warning.
Set ``BARNABAS_PURE=1`` to leave them out on purpose.
"""

import os
import re
import sys
import tomllib
from pathlib import Path

from setuptools import Extension, setup

COMPILE = ["-O3", os.environ.get("BARNABAS_DEBUG_INFO", "-g0")]
"""Without debug information, which Python's own flags ask for: with it compiling takes a third longer, and a module is
five times as large. ``BARNABAS_DEBUG_INFO=-g`` brings it back, for a debugger or for perf."""


def kernels() -> list[Extension]:
    """Returns the extension modules, translated to C; none if there is no Cython or they are not wanted."""
    if os.environ.get("BARNABAS_PURE") == "1":
        return []
    try:
        from Cython.Build import cythonize  # absent on a machine that builds without it
    except ImportError:
        return []
    extensions = [
        Extension(
            str(source.relative_to("src").with_suffix("")).replace(os.sep, "."),
            [str(source)],
            extra_compile_args=COMPILE,
        )
        for source in sorted(Path("src").rglob("*.pyx"))
    ]
    built: list[Extension] = cythonize(extensions, language_level=3, quiet=True)
    for extension in built:
        extension.optional = True  # here, because cythonize makes new objects and forgets it
    return built


def index_readme() -> str:
    """Returns the README as a package index shows it."""
    sys.path.insert(0, str(Path(__file__).parent / "tools"))
    from index_page import index_page  # beside this file, also in an sdist

    sys.path.pop(0)
    urls = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    init = Path("src/barnabas/__init__.py").read_text(encoding="utf-8")
    version = re.findall(r'^__version__ = "(.+)"$', init, re.MULTILINE)[0]
    return index_page(Path("README.md").read_text(encoding="utf-8"), urls["Source"], f"v{version}")


setup(
    long_description=index_readme(),
    long_description_content_type="text/markdown",
    ext_modules=kernels(),
    options={"build_ext": {"parallel": os.cpu_count() or 1}},
)
