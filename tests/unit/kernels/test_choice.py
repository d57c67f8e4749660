"""The one chooser: which code runs, and what it says about it."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES

import pytest

from barnabas import _kernels


def run(program: str, pure: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "BARNABAS_PURE": pure},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


@pytest.mark.parametrize("pure", ["0", "1"])
def test_the_environment_chooses_the_twins(pure: str) -> None:
    program = "from barnabas import _kernels as k; print({getattr(k, n).__name__.split('.')[2] for n in k.__all__})"
    assert run(program, pure) in ({"{'pure'}"} if pure == "1" else {"{'compiled'}", "{'pure'}"})


def test_a_kernel_is_loaded_when_it_is_used() -> None:
    program = "import sys; from barnabas import _kernels; print([n for n in sys.modules if '_kernels.' in n])"
    assert run(program, "0") == "[]"


def test_what_is_no_kernel() -> None:
    with pytest.raises(AttributeError, match="no attribute 'abacus'"):
        _kernels.abacus  # noqa: B018


def test_which_code_runs_follows_from_the_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_kernels, "__all__", ["one", "two"])
    one, two = (f"{name}{EXTENSION_SUFFIXES[0]}" for name in ("one", "two"))
    assert _kernels._describe({"one.pyx", "two.pyx"}).startswith("pure Python")
    assert _kernels._describe({one, "two.cpython-27-somewhere.so"}) == "partly compiled (1 of 2 extensions)"
    assert _kernels._describe({one, two}) == "compiled"
