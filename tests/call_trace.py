"""Records which functions of barnabas run, on which thread and in which order, while a request is handled."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

import barnabas

SOURCE = Path(barnabas.__file__).parent


class Call(NamedTuple):
    """One call of a Python function: generated code, comprehensions and the standard library are left out."""

    thread: str
    depth: int
    code: CodeType

    @property
    def module(self) -> str:
        """The module's path below ``src/barnabas``."""
        return str(Path(self.code.co_filename).relative_to(SOURCE))

    @property
    def function(self) -> str:
        return self.code.co_qualname.replace(".<locals>", "")


class CallTrace:
    """Profiles all threads that start inside `installed`; keeps calls only inside `recording`.

    >>> trace = CallTrace()
    >>> with trace.installed(), EmbeddedBroker() as broker:  # doctest: +SKIP
    ...     with trace.recording() as calls:
    ...         client.send(request)
    """

    def __init__(self) -> None:
        self._calls: list[Call] | None = None
        self._local = threading.local()
        self._prefix = str(SOURCE)

    @contextmanager
    def installed(self) -> Iterator[None]:
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    @contextmanager
    def recording(self) -> Iterator[list[Call]]:
        calls: list[Call] = []
        self._calls = calls
        try:
            yield calls
        finally:
            self._calls = None

    def _profile(self, frame: FrameType, event: str, _argument: object) -> None:
        if event not in {"call", "return"}:
            return
        code = frame.f_code
        if not code.co_filename.startswith(self._prefix) or code.co_name.startswith("<"):
            return
        local = self._local
        depth = getattr(local, "depth", 0)
        if event == "return":
            local.depth = max(depth - 1, 0)
            return
        local.depth = depth + 1
        calls = self._calls
        if calls is not None:
            calls.append(Call(threading.current_thread().name, depth, code))


def summary_of(code: CodeType) -> str:
    """The first line of a function's docstring, or nothing."""
    # The compiler stores a docstring as the first constant.
    text = code.co_consts[0] if code.co_consts and isinstance(code.co_consts[0], str) else ""
    return inspect.cleandoc(text).splitlines()[0] if text else ""
