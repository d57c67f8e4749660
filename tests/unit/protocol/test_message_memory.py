"""Messages with many entries are decoded, encoded and freed in turns with other threads, and not tracked.

The tests below show a turn by what another thread sees: a state that exists only while the work is half done. A thread
that never gets its turn inside the call cannot see it, however often the call is repeated.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module

import pytest

from barnabas import _kernels
from barnabas.protocol.fields import array, string
from barnabas.protocol.message import Message, Struct

ENTRIES = 100_000
LIMIT_S = 60
SHARED = "-".join(["the default of", "a field that version 0 does not have"])  # not a constant: its references count


class Entry(Struct):
    name: str = string(default="")
    added: str = string(versions="1+", default=SHARED, ignorable=True)


class Entries(Message, versions="0-1"):
    entries: list[Entry] = array(Entry)


@pytest.fixture(params=["compiled", "pure"])
def kernel(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if name == "compiled":
        pytest.importorskip("barnabas._kernels.compiled.memory", reason="not built")
    return name


@pytest.fixture
def compiled() -> None:
    if not _kernels.is_compiled("memory"):
        pytest.skip("the twin leaves freeing to the interpreter")


@pytest.fixture(autouse=True)
def quick_turns() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def references() -> int:
    return sys.getrefcount(SHARED)


class Turns:
    """Repeats work until another thread has seen it half done."""

    def __init__(self, is_half_done: Callable[[], bool]) -> None:
        self._is_half_done = is_half_done
        self._round = 0
        """Odd while the work runs that is watched."""
        self._seen = threading.Event()
        self._stop = threading.Event()

    @contextmanager
    def watched(self) -> Iterator[None]:
        self._round += 1
        yield
        self._round += 1

    def _watch(self) -> None:
        while not self._stop.is_set() and not self._seen.is_set():
            before = self._round
            if before % 2 and self._is_half_done() and self._round == before:
                self._seen.set()

    def seen_inside(self, call: Callable[[], object]) -> bool:
        """Returns whether the other thread got a turn; False if that never happened."""
        watcher = threading.Thread(target=self._watch)
        watcher.start()
        try:
            end = time.monotonic() + LIMIT_S
            while not self._seen.is_set() and time.monotonic() < end:
                call()
        finally:
            self._stop.set()
            watcher.join()
        return self._seen.is_set()


def test_both_kernels_are_an_empty_base_class(kernel: str) -> None:
    base = import_module(f"barnabas._kernels.{kernel}.memory").StructMemory

    class Derived(base):  # type: ignore[misc, valid-type]
        __slots__ = ("value",)

    one = Derived()
    one.value = 1
    assert one.value == 1
    assert not hasattr(one, "__dict__")
    assert gc.is_tracked(one) is (kernel == "pure")


def test_both_kernels_reach_the_allocator(kernel: str) -> None:
    module = import_module(f"barnabas._kernels.{kernel}.memory")
    library = ctypes.CDLL(None)
    assert module.use_one_arena() is hasattr(library, "mallopt")
    module.trim()
    assert module.trim() in {True, False}


@pytest.mark.usefixtures("compiled")
def test_structs_are_not_tracked() -> None:
    made = Entries(entries=[Entry(name="a"), Entry("b")])
    decoded = Entries.decode(made.encode(0), 0)
    assert decoded == made
    for one in (made, *made.entries, decoded, decoded.entries, *decoded.entries):
        assert not gc.is_tracked(one)


@pytest.mark.usefixtures("compiled")
def test_other_threads_run_while_entries_are_freed() -> None:
    few = references()
    turns = Turns(lambda: few + 1000 < references() < few + ENTRIES - 1000)

    def free() -> None:
        entries = [Entry("a", SHARED) for _ in range(ENTRIES)]
        with turns.watched():
            entries.clear()

    assert turns.seen_inside(free)


@pytest.mark.usefixtures("compiled")
def test_other_threads_run_while_entries_are_decoded() -> None:
    data = Entries(entries=[Entry("a")] * ENTRIES).encode(0)
    few = references()
    turns = Turns(lambda: few + 1000 < references() < few + ENTRIES - 1000)

    def decode() -> None:
        with turns.watched():
            decoded = Entries.decode(data, 0)
        assert len(decoded.entries) == ENTRIES

    assert turns.seen_inside(decode)


@pytest.mark.usefixtures("compiled")
def test_other_threads_run_while_entries_are_encoded() -> None:
    ends: list[str] = []
    plain = sys.getsizeof("ä1"), sys.getsizeof(f"ä{ENTRIES - 1}")
    turns = Turns(lambda: sys.getsizeof(ends[0]) > plain[0] and sys.getsizeof(ends[1]) == plain[1])

    def encode() -> None:
        # A string keeps its UTF-8 form after it was encoded: its size tells whether the encoder was there.
        names = [f"ä{number}" for number in range(ENTRIES)]
        message = Entries(entries=[Entry(name) for name in names])
        ends[:] = [names[1], names[-1]]
        with turns.watched():
            message.encode(0)

    assert turns.seen_inside(encode)


@pytest.mark.usefixtures("compiled")
def test_long_loops_leave_it_to_the_interpreter_when_to_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that released the lock by itself would wake those that wait for it, and have it again before they run."""
    offered: list[str] = []
    for name in ("memory", "codec"):
        monkeypatch.setattr(
            import_module(f"barnabas._kernels.compiled.{name}"), "offer_turn", lambda at=name: offered.append(at)
        )
    for _ in range(1024):
        Entry()
    assert offered == ["memory"] * 4
    offered.clear()
    data = Entries(entries=[Entry() for _ in range(1024)]).encode(0)
    assert offered.count("codec") == 4
    Entries.decode(data, 0)
    assert offered.count("codec") >= 7


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("work", ["decode", "encode", "free"])
@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit])
def test_an_exception_of_a_signal_handler_is_not_lost(
    work: str, raised: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interpreter calls signal handlers when it may switch threads: Ctrl-C has to end the program."""
    message = Entries(entries=[Entry() for _ in range(600)])
    data = message.encode(0)
    handled: list[None] = []

    def handle_signal() -> None:
        if not handled:
            handled.append(None)
            raise raised

    def free() -> None:
        for _ in range(600):
            Entry()

    does = {"decode": lambda: Entries.decode(data, 0), "encode": lambda: message.encode(0), "free": free}[work]
    name = "memory" if work == "free" else "codec"
    monkeypatch.setattr(import_module(f"barnabas._kernels.compiled.{name}"), "offer_turn", handle_signal)
    with pytest.raises(raised):
        does()
    assert handled
