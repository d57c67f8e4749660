"""A run as Markdown: what it ran on, all figures, what was not reached and why, and what went wrong."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.peers.budget import clock_text
from benchmarks.peers.next_steps import next_step
from benchmarks.peers.rounds import Measured, figure
from benchmarks.peers.run import Kept, Run
from benchmarks.peers.systems import KAFKA, OURS


def markdown(run: Run, place: str = "") -> str:
    """`place` is where the results are, seen from the page that this goes into."""
    parts = [head(run), figures(run.measured), not_reached(run, place), other_profiles(run, place), failures(run)]
    return "\n".join(part for part in parts if part)


def head(run: Run) -> str:
    machine = run.machine
    cores = f"{machine['cores']} cores" + (f" ({machine['processor']})" if machine.get("processor") else "")
    took = f" The run took {clock_text(run.seconds)} minutes." if run.seconds else ""
    cut = "" if run.is_whole else " **Not all cases were run.**"
    return (
        f"{cores}, {machine['memory_gb']} GB, {machine['system']}, CPython {machine['python']},"
        f" Java {machine['java']}; Apache Kafka {machine['kafka']}{packages(machine)}."
        f" Medians of {rounds_text(run.measured)} rounds in turns; in brackets the least and greatest ratio of a round."
        f" {others_text(run.measured)}{took}{cut}\n"
    )


def packages(machine: dict[str, Any]) -> str:
    names = ("confluent-kafka", "kafka-python", "aiokafka", "pyspark")
    return "".join(f", {name} {machine[name]}" for name in names if name in machine)


def figures(measured: Sequence[Measured]) -> str:
    lines = ["| case | | Barnabas | Apache Kafka | ratio | target |", "|---|---|---|---|---|---|"]
    for one in measured:
        target = target_text(one) + (", **not reached**" if one.reached is False else "")
        ratio = "" if one.ratio is None else f"{one.ratio:.2f}x ({min(one.ratios):.2f} - {max(one.ratios):.2f})"
        lines.append(
            f"| {one.title} | {one.metric.name}, {one.metric.unit} | {figure(one.median(OURS))} |"
            f" {figure(one.median(KAFKA))} | {ratio} | {target} |"
        )
    return "\n".join(lines) + "\n"


def target_text(one: Measured) -> str:
    if one.metric.target is None:
        return ""
    return f"{'at least' if one.metric.more_is_better else 'at most'} {one.metric.target:g}x"


def not_reached(run: Run, place: str) -> str:
    """The figure, the profile, and what the next step would be."""
    if not run.missed:
        return ""
    lines = ["Not reached:", "", "| case | ratio | profile | next step |", "|---|---|---|---|"]
    for one in run.missed:
        kept = run.profiles.get(one.case)
        profile = "none was made" if kept is None else profile_link(kept, place)
        lines.append(
            f"| {one.title}: {one.metric.name} | {one.ratio:.2f}x ({target_text(one)}) | {profile} |"
            f" {next_step(one.case, one.metric.name)} |"
        )
    return "\n".join(lines) + "\n"


def profile_link(kept: Kept, place: str) -> str:
    path = f"{place}/{kept.file}" if place else kept.file
    # The largest first, and no line for next to nothing.
    shares = sorted(((part, group) for group, part in kept.shares.items() if part >= 1), reverse=True)
    text = ", ".join(f"{group} {part:.0f} %" for part, group in shares)
    earlier = " (of an earlier run)" if kept.is_earlier else ""
    return f"[profile]({path}){earlier}" + (f": {text}" if text else "")


def other_profiles(run: Run, place: str) -> str:
    missed = {one.case for one in run.missed}
    titles = {one.case: one.title for one in run.measured}
    others = [key for key in run.profiles if key not in missed]
    if not others:
        return ""
    lines = ["Profiles of our broker in the cases with the least to spare:", ""]
    lines += [f"- {titles.get(key, key)}: {profile_link(run.profiles[key], place)}" for key in others]
    return "\n".join(lines) + "\n"


def failures(run: Run) -> str:
    if not run.failed:
        return ""
    lines = ["Failed:", ""] + [f"- {one.title}: {one.reason}" for one in run.failed]
    return "\n".join(lines) + "\n"


def rounds_text(measured: Sequence[Measured]) -> str:
    counts = sorted({len(one.ratios) for one in measured if len(one.ratios) > 1}) or [1]
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def others_text(measured: Sequence[Measured]) -> str:
    """How quiet the machine was: the typical round, and the worst."""
    parts = [part for one in measured for part in one.others]
    if not parts:
        return ""
    return f"Other processes and the kernel had {statistics.median(parts):.0%} of the cores, at most {max(parts):.0%}."
