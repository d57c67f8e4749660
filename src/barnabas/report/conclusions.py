"""What the numbers of a report mean, in sentences, with the commands to run next.

Each rule is a function of the data that returns its conclusions; `RULES` has all of them. Thresholds have names.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from barnabas.common.topic_names import REQUEST_LOG_TOPIC
from barnabas.report.charts import PART_TITLES, part_shares
from barnabas.report.comparison import Comparison, change
from barnabas.report.data import ReportData
from barnabas.report.failures import Failures
from barnabas.report.latency import LatencyRow
from barnabas.report.quota_use import AdvisedLimit, GroupUse
from barnabas.report.traffic import Noise, TenantTotal, Traffic
from barnabas.report.units import duration, number, percent, rate, size
from barnabas.spark.pipelines.quota_advice import NOISY

WAIT_MS: Final = 10.0
"""Requests that wait longer than this for a handler, on average, are affected by others."""
SLOW_MS: Final = 500.0
"""A 99th percentile of Produce above this is slow."""
SAME_LIMIT: Final = 0.05
"""Limits that differ by less than this fraction count as equal."""
MOST_NAMES: Final = 3
MOST_COMMANDS: Final = 6
CHANGED: Final = 0.25
"""A change of traffic by less than this fraction is not mentioned."""
SLOWER: Final = 0.5
"""A change of a 99th percentile by less than this fraction is not mentioned."""
SLOWER_MS: Final = 5.0
"""Nor is a change by less than this."""
SMALL_TENANT: Final = 0.01
"""Changes of tenants with a smaller share of all bytes are not mentioned."""
CAPACITY: Final = "--capacity producer_byte_rate=50MB"
RESOURCE_WORDS: Final = {
    "producer_byte_rate": ("produced_bytes", "bytes produced"),
    "consumer_byte_rate": ("fetched_bytes", "bytes fetched"),
    "request_percentage": ("thread_ms", "thread time"),
}


class Level(IntEnum):
    """How much a conclusion matters."""

    ALARM = 0
    WARNING = 1
    NOTE = 2
    GOOD = 3


@dataclass(frozen=True, slots=True)
class Command:
    """A command to copy, and its purpose."""

    purpose: str
    line: str


@dataclass(frozen=True, slots=True)
class Conclusion:
    """One or two sentences, and what to do."""

    rule: str
    level: Level
    text: str
    commands: Sequence[Command] = ()


def draw_conclusions(data: ReportData, comparison: Comparison | None = None) -> list[Conclusion]:
    """Applies all rules; the most important conclusion is the first."""
    found = [conclusion for rule in RULES for conclusion in rule(data)]
    if comparison is not None:
        found += compared(comparison)
    return sorted(found + quiet(data, found), key=lambda one: one.level)


def failing(data: ReportData) -> list[Conclusion]:
    """Finds requests that go on failing, by API and tenant."""
    rows = data.latency.by_tenant if data.latency else ()
    found = []
    for row in rows:
        if row.failures is Failures.ALARM:
            text = (
                f"{number(row.failed)} of {number(row.requests)} {row.api} requests of {row.tenant} failed "
                f"({percent(row.failed / row.requests)})."
            )
            show = f"barnabas consume {REQUEST_LOG_TOPIC} --from-beginning --exit"
            search = f"""grep '"api":"{row.api}"' | grep '"errors":{{"'"""
            found.append(
                Conclusion("failing", Level.ALARM, text, [Command("To see the errors:", f"{show} | {search}")])
            )
    harmless = [row for row in rows if row.failures in {Failures.FEW, Failures.START_UP}]
    if harmless:
        count = sum(row.failed for row in harmless)
        requests = counted(count, "request")
        apis = listed(sorted({row.api for row in harmless}))
        text = f"{requests} failed ({apis}): few, or while clients and groups started. Clients retry those."
        found.append(Conclusion("failing", Level.NOTE, text))
    return found


def noisy(data: ReportData) -> list[Conclusion]:
    """Finds tenants that used much more than an equal share, and whether others were affected."""
    if data.traffic is None:
        return []
    found = []
    for name, noise in _noisiest(data.traffic).items():
        tenant = next(one for one in data.traffic.tenants if one.name == name)
        column, words = RESOURCE_WORDS[noise.quota]
        everything = sum(getattr(one, column) for one in data.traffic.tenants)
        share = percent(getattr(tenant, column) / everything)
        text = f"{name} used {share} of the {words}"
        text += f" and was throttled for {duration(tenant.throttle_ms)}." if tenant.throttle_ms else "."
        others = [one for one in data.traffic.tenants if one is not tenant and one.moves_records]
        effect, is_harmful = _effect_on(others, noise)
        sentences = [text, effect, _limit_sentence(data, name, noise.quota)]
        level = Level.ALARM if is_harmful else Level.WARNING
        commands = _limit_commands(data, name, noise.quota)
        found.append(Conclusion("noisy", level, " ".join(one for one in sentences if one), commands))
    return found


def _noisiest(traffic: Traffic) -> dict[str, Noise]:
    """Returns the noisiest minute of each tenant.

    A high share of thread time does not count as noise unless other requests had to wait.
    """
    found: dict[str, Noise] = {}
    for noise in traffic.noise:
        others_wait = (noise.others_queue_ms or 0.0) >= WAIT_MS
        if noise.quota == "request_percentage" and not others_wait:
            continue
        found.setdefault(noise.tenant, noise)
    return found


def _effect_on(others: Sequence[TenantTotal], noise: Noise) -> tuple[str, bool]:
    """Describes the effect on other tenants; returns also whether it was harmful."""
    if not others:
        return "", False
    names = listed([one.name for one in others])
    throttled = [one for one in others if one.throttle_ms > 0]
    if (noise.others_queue_ms or 0.0) >= WAIT_MS:
        waited = duration(noise.others_queue_ms)
        return f"Meanwhile requests of {names} waited {waited} on average for a handler.", True
    if throttled:
        return f"Of the others {listed([one.name for one in throttled])} {_was(throttled)} throttled as well.", False
    return f"{names} {_was(others)} not affected.", False


def _limit_sentence(data: ReportData, name: str, quota: str) -> str:
    now, advised = _group(data, name, quota), _advised(data, name, quota)
    if now is None or now.limit is None:
        return ""
    text = f"The limit of {name} is {rate(quota, now.limit)}"
    if advised is None:
        return f"{text}."
    return f"{text}; the advice is {rate(quota, advised.limit)}." if _differs(data, advised) else f"{text}, as advised."


def _limit_commands(data: ReportData, name: str, quota: str) -> list[Command]:
    now, advised = _group(data, name, quota), _advised(data, name, quota)
    if advised is not None and _differs(data, advised):
        line = set_command(advised.user, advised.client_id, quota, advised.limit)
        return [Command("To limit it as advised:", line)]
    if now is not None:
        return [Command("To see what it uses now:", f"barnabas quotas explain{entity(now.user, now.client_id)}")]
    if data.advice is not None:
        return []
    out = shlex.quote(str(data.tables.out))
    return [Command("To get advice on a limit:", f"barnabas pipeline run quota-advice --out {out} {CAPACITY}")]


def throttled(data: ReportData) -> list[Conclusion]:
    """Finds groups of clients that were throttled without being noisy."""
    if data.quota_use is None:
        return []
    loud = set(_noisiest(data.traffic)) if data.traffic else set()
    found = []
    for group in data.quota_use.groups:
        if group.throttle_ms <= 0 or group.limit is None or group.name in loud:
            continue
        times, time = counted(group.throttle_count, "time"), duration(group.throttle_ms)
        text = (
            f"{group.name} was throttled {times}, for {time} in all: its {group.quota} is "
            f"{rate(group.quota, group.limit)}, its peak was {rate(group.quota, group.peak)}."
        )
        advised = _advised(data, group.name, group.quota)
        if advised is not None and advised.verdict == NOISY:
            text += f" The advice calls it noisy, and limits it to {rate(group.quota, advised.limit)}."
            commands = _limit_commands(data, group.name, group.quota)
        else:
            line = set_command(group.user, group.client_id, group.quota, round_up(group.peak))
            commands = [Command("To let its peak through:", line)]
        found.append(Conclusion("throttled", Level.WARNING, text, commands))
    return found


def dry_run(data: ReportData) -> list[Conclusion]:
    """Sums up the dry run of limits."""
    if data.advice is None or not data.advice.dry_run:
        return []
    rows = data.advice.dry_run
    slowed = [f"{one.name} for {duration(one.throttle_ms)}" for one in rows if one.throttle_ms > 0]
    free = [one.name for one in rows if one.throttle_ms <= 0]
    if slowed:
        text = f"The limits of the dry run would have throttled {listed(slowed)}"
        text += f", and {listed(free)} not at all." if free else "."
    else:
        text = "The limits of the dry run would have throttled nobody."
    differing = [one for one in data.advice.limits if _differs(data, one)]
    commands = [
        Command(f"To set the advised limit of {one.name}:", set_command(one.user, one.client_id, one.quota, one.limit))
        for one in differing[:MOST_COMMANDS]
        if one.verdict != NOISY
    ]
    return [Conclusion("dry-run", Level.NOTE, text, commands)]


def _differs(data: ReportData, advised: AdvisedLimit) -> bool:
    now = _group(data, advised.name, advised.quota)
    return now is None or now.limit is None or abs(advised.limit / now.limit - 1) > SAME_LIMIT


def slow(data: ReportData) -> list[Conclusion]:
    """Says how long Produce requests took, and where."""
    rows = [row for row in data.latency.by_api if row.api == "Produce"] if data.latency else []
    found = []
    for row in rows:
        if row.p99 is None:
            continue
        text = f"99 % of the Produce requests took at most {duration(row.p99)} in the broker"
        is_slow = row.p99 > SLOW_MS
        text += f", most of it {_largest_part(row)}." if is_slow else "."
        found.append(Conclusion("slow", Level.WARNING if is_slow else Level.NOTE, text))
    return found


def _largest_part(row: LatencyRow) -> str:
    in_broker = {part: share for part, share in part_shares(row).items() if part != "throttle"}
    return PART_TITLES[max(in_broker, key=lambda part: in_broker[part])]


def client_errors(data: ReportData) -> list[Conclusion]:
    """Finds clients that report records which they could not send."""
    failed = [one for one in (data.clients.clients if data.clients else ()) if one.values.get("errors", 0.0) > 0]
    if not failed:
        return []
    names = listed(sorted({one.client_id for one in failed}))
    count = sum(one.values["errors"] for one in failed)
    return [Conclusion("client-errors", Level.ALARM, f"{names} could not send {counted(count, 'record')}.")]


def lagging(data: ReportData) -> list[Conclusion]:
    """Finds groups that are behind: those that nobody reads for any more, and the largest of the others."""
    groups = [one for one in (data.cluster.groups if data.cluster else ()) if one.lag]
    found = []
    abandoned: dict[str, int] = {}
    for one in groups:
        if one.is_abandoned:
            abandoned[one.group] = abandoned.get(one.group, 0) + one.lag
    for name, lag in abandoned.items():
        text = f"{counted(lag, 'record')} wait for the group {name}, which has no members."
        command = Command("To see where they are:", f"barnabas groups describe {shlex.quote(name)} --lag")
        found.append(Conclusion("lagging", Level.WARNING, text, [command]))
    behind = [one for one in groups if not one.is_abandoned]
    if behind:
        names = [f"{one.group} by {counted(one.lag, 'record')} of {one.topic}" for one in behind]
        found.append(Conclusion("lagging", Level.NOTE, f"Groups that are behind: {listed(names)}."))
    return found


def dead_letters(data: ReportData) -> list[Conclusion]:
    """Finds records that the pipelines could not use."""
    counts = {name: sum(reasons.values()) for name, reasons in (data.dead_letters or {}).items()}
    found = {name: count for name, count in counts.items() if count}
    if not found:
        return []
    count = counted(sum(found.values()), "record")
    text = f"The pipelines could not use {count} ({listed(list(found))}), see Dead letters."
    return [Conclusion("dead-letters", Level.WARNING, text)]


def quiet(data: ReportData, found: Iterable[Conclusion]) -> list[Conclusion]:
    """Says that all is well, if no other rule has found anything."""
    if data.traffic is None or any(one.level <= Level.WARNING for one in found):
        return []
    text = "No tenant was throttled, and none used more than twice its equal share of the bytes."
    return [Conclusion("quiet", Level.GOOD, text)]


def compared(comparison: Comparison) -> list[Conclusion]:
    """Names what has changed since the earlier report."""
    everything = sum(one.now.bytes_per_s for one in comparison.tenants if one.now)
    parts = []
    for one in comparison.tenants:
        before, now = one.before, one.now
        if max(found.bytes_per_s for found in (before, now) if found) < SMALL_TENANT * everything:
            continue
        if before is None or now is None:
            parts.append(f"{one.name} is {'gone' if now is None else 'new'}")
            continue
        traffic = change(before.bytes_per_s, now.bytes_per_s)
        if traffic is not None and abs(traffic) >= CHANGED:
            verb = "more" if traffic > 0 else "less"
            parts.append(f"{one.name} moved {percent(abs(traffic))} {verb} ({size(now.bytes_per_s)}/s)")
        p99 = change(before.produce_p99_ms, now.produce_p99_ms)
        by_ms = abs((now.produce_p99_ms or 0.0) - (before.produce_p99_ms or 0.0))
        if p99 is not None and abs(p99) >= SLOWER and by_ms >= SLOWER_MS:
            words = f"{duration(before.produce_p99_ms)} to {duration(now.produce_p99_ms)}"
            parts.append(f"the p99 of Produce of {one.name} went from {words}")
        if bool(before.throttle_ms_per_s) != bool(now.throttle_ms_per_s):
            parts.append(f"{one.name} is {'now' if now.throttle_ms_per_s else 'no longer'} throttled")
    text = "Since the earlier report: " + ("; ".join(parts) if parts else "no large change") + "."
    return [Conclusion("compared", Level.NOTE, text)]


RULES: Final[Sequence[Callable[[ReportData], list[Conclusion]]]] = (
    failing,
    noisy,
    throttled,
    client_errors,
    lagging,
    dead_letters,
    dry_run,
    slow,
)


def set_command(user: str | None, client_id: str | None, quota: str, limit: float) -> str:
    """Returns the command that sets a limit.

    >>> set_command(None, "my reports", "producer_byte_rate", 1_081_234.5)
    "barnabas quotas set --client-id 'my reports' producer_byte_rate=1080000"
    """
    amount = float(f"{limit:.3g}")
    text = f"{amount:.0f}" if amount >= 100 else f"{amount:g}"
    return f"barnabas quotas set{entity(user, client_id)} {quota}={text}"


def entity(user: str | None, client_id: str | None) -> str:
    """Returns the options of a quota's entity.

    >>> entity("alice", None), entity(None, None)
    (' --user alice', ' --default-client-id')
    """
    options = [
        f" {option} {shlex.quote(name)}" for option, name in (("--user", user), ("--client-id", client_id)) if name
    ]
    return "".join(options) or " --default-client-id"


def listed(names: Sequence[str]) -> str:
    """Joins names for a sentence.

    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"]), listed(["a", "b", "c", "d", "e"])
    ('a', 'a and b', 'a, b and c', 'a, b and 3 others')
    """
    if len(names) > MOST_NAMES:
        names = [*names[: MOST_NAMES - 1], f"{len(names) - MOST_NAMES + 1} others"]
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def counted(count: float, noun: str) -> str:
    """Returns a number with its noun.

    >>> counted(1, "record"), counted(1_200, "record")
    ('1 record', '1,200 records')
    """
    return f"{number(count)} {noun}" if count == 1 else f"{number(count)} {noun}s"


def round_up(amount: float) -> float:
    """Rounds up to two significant digits.

    >>> round_up(2_940_123.0), round_up(0.0)
    (3000000.0, 0.0)
    """
    if amount <= 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(amount)) - 1)
    return math.ceil(amount / unit) * unit


def _was(several: Sequence[object]) -> str:
    return "was" if len(several) == 1 else "were"


def _group(data: ReportData, name: str, quota: str) -> GroupUse | None:
    groups = data.quota_use.groups if data.quota_use else ()
    return next((one for one in groups if one.name == name and one.quota == quota), None)


def _advised(data: ReportData, name: str, quota: str) -> AdvisedLimit | None:
    limits = data.advice.limits if data.advice else ()
    return next((one for one in limits if one.name == name and one.quota == quota), None)
