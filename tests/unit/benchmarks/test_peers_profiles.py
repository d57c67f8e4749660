"""Which cases are looked at more closely, and what is made of what perf and py-spy print."""

from __future__ import annotations

import pytest
from benchmarks.peers import profiles
from benchmarks.peers.profile_text import (
    INTERPRETER,
    KERNEL,
    OTHERS,
    OURS,
    Profile,
    functions_of,
    plain_name,
    profile_text,
    shares_of,
    symbols_of,
    system_calls_of,
)

from unit.benchmarks.peers_fixtures import measured

MODULE = "_reactor.cpython-311-x86_64-linux-gnu.so"
FLAT = f"""\
# To display the perf.data header info, please use --header/--header-only options.
#
# Samples: 186  of event 'cpu-clock:ppp'
#
# Overhead|Shared Object       |Symbol
 40.00% |[kernel.kallsyms]   |[k] copy_folio_from_iter_atomic
 10.00% |[kernel.kallsyms]   |[k] tcp_sendmsg_locked
 5.00%  |[kernel.vmlinux]    |[k] copy_folio_from_iter_atomic
 20.00% |libpython3.11.so.1.0|[.] _PyEval_EvalFrameDefault
 4.00%  |python3.11          |[.] 0x00000000001a2b3c
 1.00%  |python3.11          |[.] 0x00000000001a2b40
 12.00% |{MODULE}|[.] __pyx_pw_8barnabas_7network_8_reactor_7Reactor_3poll
 6.00%  |libc.so.6           |[.] __memmove_avx512_unaligned_erms
 2.00%  |/home/somebody/lib/_other.cpython-311-x86_64-linux-gnu.so|[.] crc32c
"""
DEEP = """\
 46.24% |[kernel.kallsyms]   |[k] ksys_write
 47.00% |[kernel.kallsyms]   |[k] __x64_sys_write
 20.43% |[kernel.kallsyms]   |[k] __sys_sendto
 12.90% |[kernel.kallsyms]   |[k] __x64_sys_close
 0.54%  |libpython3.11.so.1.0|[.] sys_audit_tstate
"""
STACKS = """\
run (threading.py:982);poll (/home/me/src/barnabas/network/reactor/selector.py:88);handle (barnabas/server/apis.py:3) 60
run (threading.py:982);poll (/home/me/src/barnabas/network/reactor/selector.py:88) 30
run (threading.py:982);<module> (<string>:1);run (threading.py:982) 10
run (threading.py:982);Condition.wait (threading.py:295) 700
not a stack
"""


def test_the_worst_are_those_furthest_from_their_targets() -> None:
    found = profiles.worst(
        [
            measured("fine", [300], [100], target=1.0),
            measured("close", [105], [100], target=1.0),
            measured("start", [8], [100], target=0.1, more_is_better=False),
            measured("slow", [60], [100], target=1.0),
            measured("without-a-target", [90], [100]),
        ],
        {"fine", "close", "slow", "without-a-target", "start"},
    )
    assert found == ["slow", "without-a-target", "close"]


def test_a_case_is_looked_at_once_and_only_if_it_can_be_run() -> None:
    rows = [
        measured("a", [50], [100], target=1.0),
        measured("a", [3], [1], target=1.0, more_is_better=False, name="broker CPU"),
        measured("b", [70], [100], target=1.0),
        measured("start-up", [10], [1], target=0.1, more_is_better=False),
        measured("nothing", [1], [0], target=1.0),
    ]
    assert profiles.worst(rows, {"a", "b", "nothing"}) == ["a", "b"]


@pytest.mark.parametrize(("missed", "looked_at"), [(0, 3), (4, 4), (9, 6)])
def test_all_that_missed_a_target_are_looked_at_up_to_a_bound(missed: int, looked_at: int) -> None:
    rows = [measured(f"missed-{number}", [90 - number], [100], target=1.0) for number in range(missed)]
    # The ratio of these is worse, but nobody has promised another.
    rows += [measured(f"other-{number}", [20], [100]) for number in range(9)]
    found = profiles.worst(rows, {one.case for one in rows})
    assert len(found) == looked_at
    assert all(key.startswith("missed") for key in found[:missed])
    if missed:
        assert found[0] == f"missed-{missed - 1}"


def test_time_goes_to_the_kernel_the_interpreter_our_modules_and_others() -> None:
    symbols = symbols_of(FLAT, {MODULE})
    assert shares_of(symbols) == {KERNEL: 55.0, INTERPRETER: 25.0, OURS: 12.0, OTHERS: 8.0}
    assert [one.name for one in symbols[:2]] == ["copy_folio_from_iter_atomic", "_PyEval_EvalFrameDefault"]
    addresses = [one for one in symbols if one.name == "(no symbol)"]
    assert [one.percent for one in addresses] == [5.0]


def test_a_module_of_somebody_else_is_not_ours() -> None:
    assert {one.group for one in symbols_of(FLAT, ()) if one.file == MODULE} == {OTHERS}


def test_no_samples_have_no_parts() -> None:
    assert shares_of(symbols_of("# nothing\n", ())) == {}


def test_a_system_call_has_what_the_kernel_does_in_it() -> None:
    assert system_calls_of(DEEP) == {"write": 47.0, "sendto": 20.43, "close": 12.9}


def test_functions_of_python_with_and_without_what_they_call() -> None:
    by_name = {one.name: (one.itself, one.with_callees) for one in functions_of(STACKS)}
    assert by_name == {
        "handle (apis.py)": (60.0, 60.0),
        "poll (selector.py)": (30.0, 90.0),
        # Twice on a stack is once in the sample.
        "run (threading.py)": (10.0, 100.0),
        "<module> (<string>)": (0.0, 10.0),
    }


def test_the_text_has_no_directories_and_the_greatest_first() -> None:
    profile = Profile(symbols_of(FLAT, {MODULE}), system_calls_of(DEEP), functions_of(STACKS))
    text = profile_text(["the figure"], profile)
    assert text.startswith("the figure\n")
    assert "/" not in text
    assert "home" not in text
    places = [text.index(part) for part in ("copy_folio", "_PyEval", "Reactor.poll  (_reactor)", "crc32c  (_other)")]
    assert places == sorted(places)
    assert "  47.0 %  write" in text
    assert "  60.0 %   60.0 %  handle (apis.py)" in text


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("__pyx_f_8barnabas_7records_12_plain_batch_records_are_plain", "records_are_plain"),
        ("__pyx_pw_8barnabas_7network_8_reactor_12SelectorCore_11_move", "SelectorCore._move"),
        ("__pyx_getprop_8barnabas_6server_9_timeline_8Timeline_body_start", "Timeline.body_start"),
        ("__pyx_pw_8barnabas_7network_6_epoll_1wait", "wait"),
        ("__Pyx_PyLong_As_int64_t", "__Pyx_PyLong_As_int64_t"),
        ("memcpy", "memcpy"),
    ],
)
def test_names_are_those_of_the_source(symbol: str, name: str) -> None:
    assert plain_name(symbol) == name


def test_the_text_says_which_tool_was_missing() -> None:
    text = profile_text([], Profile([], {}, functions_of(STACKS)))
    assert "perf was not there" in text
    assert "py-spy was not there" in profile_text([], Profile(symbols_of(FLAT, ()), {}, []))


def test_without_a_profiler_it_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr(profiles, "_py_spy", lambda: None)
    told: list[str] = []
    assert profiles.keep_profiles([], [], None, tmp_path, told.append) == {}  # type: ignore[arg-type]
    assert told == ["no profiles: there is neither perf nor py-spy on this machine"]
