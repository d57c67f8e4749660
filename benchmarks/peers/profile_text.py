"""What perf and py-spy print, made into a text for people: who had the processor, by group, and which functions.

The groups are the parts of the broker that one can do something about in different ways: the kernel (fewer or larger
calls), the interpreter (fewer bytecodes), our compiled modules (better code), and the rest.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

KERNEL = "kernel"
INTERPRETER = "interpreter"
OURS = "our compiled modules"
OTHERS = "other libraries"
GROUPS = (KERNEL, INTERPRETER, OURS, OTHERS)
SYMBOLS_SHOWN = 12
FUNCTIONS_SHOWN = 25
_LINE = re.compile(r"^\s*([\d.]+)%\s*\|\s*(.*?)\s*\|\s*\[(.)\]\s*(.*?)\s*$")
_SYSTEM_CALL = re.compile(r"^(?:__(?:x64|arm64|ia32)_sys_|ksys_|__sys_)(\w+)$")
_INTERPRETER = re.compile(r"^(?:lib)?python[\d.]*(?:\.so[\d.]*)?$")
_FRAME = re.compile(r"^(.*) \((.*?)(?::\d+)?\)$")
_WAITING = frozenset({"Condition.wait (threading.py)", "wait (threading.py)", "EpollPoller.poll (poller.py)"})
_LENGTH = re.compile(r"\d+")
_CYTHON = re.compile(r"^__pyx_(?:pw|pf|f|getprop|setprop)_")


@dataclass(frozen=True, slots=True)
class Symbol:
    """A function and its part of all samples, in percent."""

    group: str
    file: str
    name: str
    percent: float


@dataclass(frozen=True, slots=True)
class Function:
    """A function of Python: the part of samples in which it ran, and in which it was anywhere on the stack."""

    name: str
    itself: float
    with_callees: float


@dataclass(frozen=True, slots=True)
class Profile:
    symbols: Sequence[Symbol]
    system_calls: Mapping[str, float]
    functions: Sequence[Function]


def symbols_of(report: str, our_modules: Collection[str]) -> list[Symbol]:
    """From ``perf report --no-children -F overhead,dso,symbol -t '|'``."""
    found: list[Symbol] = []
    for line in report.splitlines():
        if match := _LINE.match(line):
            percent, file, space, name = match.groups()
            # A file may be told with its directories; they are nobody's business.
            file = file.rpartition("/")[2]
            # What has no symbol is shown as its address, a different one each time: one line for all of a file.
            name = "(no symbol)" if name.startswith("0x") else name.rpartition("/")[2]
            found.append(Symbol(group_of(file, space, our_modules), file, name, float(percent)))
    return merged(found)


def group_of(file: str, space: str, our_modules: Collection[str]) -> str:
    if space == "k" or file.startswith("[kernel"):
        return KERNEL
    if _INTERPRETER.match(file):
        return INTERPRETER
    return OURS if file in our_modules else OTHERS


def merged(symbols: Iterable[Symbol]) -> list[Symbol]:
    """The same name once, the greatest first."""
    sums: defaultdict[tuple[str, str, str], float] = defaultdict(float)
    for each in symbols:
        sums[each.group, each.file, each.name] += each.percent
    return [Symbol(*key, percent) for key, percent in sorted(sums.items(), key=lambda item: -item[1])]


def shares_of(symbols: Iterable[Symbol]) -> dict[str, float]:
    """The part of each group, in percent of what could be told apart; of nothing there are no parts."""
    sums = dict.fromkeys(GROUPS, 0.0)
    for each in symbols:
        sums[each.group] += each.percent
    total = sum(sums.values())
    return {group: round(100 * value / total, 1) for group, value in sums.items()} if total else {}


def system_calls_of(report: str) -> dict[str, float]:
    """From ``perf report --children -F overhead_children,dso,symbol``: what a call took with all that the kernel did in
    it. Its entry goes through several functions of similar names; the outermost has the most."""
    calls: dict[str, float] = {}
    for line in report.splitlines():
        if (match := _LINE.match(line)) and (call := _SYSTEM_CALL.match(match[4])):
            calls[call[1]] = max(calls.get(call[1], 0.0), float(match[1]))
    return dict(sorted(calls.items(), key=lambda item: -item[1]))


def functions_of(stacks: str) -> list[Function]:
    """From ``py-spy record --format raw --function``: a stack on each line, the outermost first, and how often.

    Not every thread that waits looks idle to it, so those are taken out here."""
    itself: Counter[str] = Counter()
    anywhere: Counter[str] = Counter()
    total = 0
    for line in stacks.splitlines():
        stack, _, count = line.rpartition(" ")
        if not count.isdigit():
            continue
        frames = [_frame(text) for text in stack.split(";")]
        if frames[-1] in _WAITING:
            continue
        total += int(count)
        itself[frames[-1]] += int(count)
        for name in set(frames):
            anywhere[name] += int(count)
    names = sorted(anywhere, key=lambda name: (-itself[name], -anywhere[name], name))
    return [Function(name, 100 * itself[name] / total, 100 * anywhere[name] / total) for name in names]


def _frame(text: str) -> str:
    """``function (some/where/module.py:12)`` without the directories and the line."""
    match = _FRAME.match(text)
    return f"{match[1]} ({match[2].rpartition('/')[2]})" if match else text


def profile_text(figures: Sequence[str], profile: Profile) -> str:
    lines = [*figures, ""]
    if profile.symbols:
        lines += ["Processor time of the broker's process (perf)", ""]
        lines += [_line(percent, group) for group, percent in shares_of(profile.symbols).items()]
        for group in GROUPS:
            members = [each for each in profile.symbols if each.group == group][:SYMBOLS_SHOWN]
            if members:
                lines += ["", group, *(_line(each.percent, _symbol_text(each)) for each in members)]
    else:
        lines += ["perf was not there, or could not look at the process."]
    if profile.system_calls:
        shown = list(profile.system_calls.items())[:SYMBOLS_SHOWN]
        lines += ["", "system calls, with all that the kernel does in them"]
        lines += [_line(percent, name) for name, percent in shown]
    if profile.functions:
        lines += ["", "Functions of Python (py-spy): itself, with what it calls", ""]
        lines += [f"{each.itself:6.1f} % {each.with_callees:6.1f} %  {each.name}" for each in _shown(profile.functions)]
    else:
        lines += ["", "py-spy was not there, or could not look at the process."]
    return "\n".join(lines) + "\n"


def _shown(functions: Sequence[Function]) -> Sequence[Function]:
    """Not the frames that only call: the thread's own."""
    return [each for each in functions if each.itself > 0][:FUNCTIONS_SHOWN]


def _symbol_text(symbol: Symbol) -> str:
    if symbol.group in {KERNEL, INTERPRETER}:
        return symbol.name
    module = symbol.file.partition(".")[0]
    return f"{plain_name(symbol.name)}  ({module})"


def plain_name(symbol: str) -> str:
    """Cython has each name of a path with its length before it, and may have a number before the last one."""
    prefix = _CYTHON.match(symbol)
    if prefix is None:
        return symbol
    rest, names = symbol[prefix.end() :], []
    while (found := _LENGTH.match(rest)) and rest[found.end() + int(found[0]) :].startswith("_"):
        names.append(rest[found.end() : found.end() + int(found[0])])
        rest = rest[found.end() + int(found[0]) + 1 :]
    # The package and the module are told anyway; a class is not.
    owner = [name for name in names[-1:] if name[:1].isupper()]
    return ".".join([*owner, _LENGTH.sub("", rest, count=1) if rest[:1].isdigit() else rest])


def _line(percent: float, text: str) -> str:
    return f"{percent:6.1f} %  {text}"
