"""Builds the compiled kernels, which are optional.

Each kernel has a pure-Python twin behind the same interface, so a machine without a C compiler (or without
Cython) still gets a working install: `optional=True` turns a failed compilation into a warning.
Set ``BARNABAS_PURE=1`` to leave them out on purpose.
"""

import os
from pathlib import Path

from setuptools import Extension, setup


def kernels() -> list[Extension]:
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
            extra_compile_args=["-O3"],
        )
        for source in sorted(Path("src").rglob("*.pyx"))
    ]
    built: list[Extension] = cythonize(extensions, language_level=3, quiet=True)
    for extension in built:
        extension.optional = True  # here, because cythonize makes new objects and forgets it
    return built


setup(ext_modules=kernels())
