"""Kernels: the compiled code of Barnabas, each with a Python twin, and the one place that chooses between them.

A kernel is a function on buffers and numbers. It knows no class of the layers above, keeps no state, and touches no
private attribute of another class. Five compiled classes are allowed beside them, because they run per record, event or
message entry and hold no policy: the channel and selector (`reactor`), the request's `timeline`, the producer's
`append_state`, the `consumer_record`, and the base class of message structs (`memory`).

`compiled/NAME.pyx` is the kernel, `pure/NAME.py` its twin with the same public names and the same behaviour. Use::

    from barnabas._kernels import checksum

    checksum.crc32c(data)

The first use of a name loads the compiled module. The twin is loaded instead if the extension is not built for this
interpreter, or if the environment has ``BARNABAS_PURE=1``. Nothing is loaded that is not used.
"""

from __future__ import annotations

import os
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection
    from types import ModuleType

    from barnabas._kernels.pure import (
        append_state,
        checksum,
        codec,
        columns,
        consumer_record,
        headers,
        memory,
        metrics,
        murmur2,
        reactor,
        record_batch,
        record_codec,
        sockets,
        timeline,
    )

__all__ = [
    "append_state",
    "checksum",
    "codec",
    "columns",
    "consumer_record",
    "headers",
    "memory",
    "metrics",
    "murmur2",
    "reactor",
    "record_batch",
    "record_codec",
    "sockets",
    "timeline",
]

PURE: Final = os.environ.get("BARNABAS_PURE") == "1"
"""Whether the environment asks for the twins: to debug, to compare, or to keep C extensions out of a process."""


def __getattr__(name: str) -> ModuleType:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = globals()[name] = _choose(name)
    return module


def _choose(name: str) -> ModuleType:
    if not PURE:
        try:
            return import_module(f"{__name__}.compiled.{name}")
        except ImportError:
            pass  # not built for this interpreter
    return import_module(f"{__name__}.pure.{name}")


def is_compiled(name: str) -> bool:
    """Tells whether the compiled kernel of this name is the one in use."""
    return "compiled" in __getattr__(name).__name__


def offer_turn() -> None:
    """Does nothing: at the start of every Python function the interpreter gives its lock to a thread that has waited
    for a switch interval. So a compiled loop calls this one now and then.

    To release the lock and take it back would not do. The thread that waits is woken, finds the lock taken again, and
    starts to wait for another interval. If that happens more often than once an interval, it waits until the loop ends.
    """


def running_code() -> str:
    """Says which code runs, for people: all kernels compiled, some of them, or none and why. Loads no kernel."""
    if PURE:
        return "pure Python (BARNABAS_PURE=1)"
    from pathlib import Path  # a started broker does not need it

    return _describe({path.name for path in (Path(__file__).parent / "compiled").iterdir()})


def _describe(files: Collection[str]) -> str:
    built = sum(any(name + suffix in files for suffix in EXTENSION_SUFFIXES) for name in __all__)
    if not built:
        return "pure Python (no extension is built for this interpreter)"
    return "compiled" if built == len(__all__) else f"partly compiled ({built} of {len(__all__)} extensions)"
