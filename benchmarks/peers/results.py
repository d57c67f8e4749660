"""The results of a run: a JSON document, tables in Markdown, charts, and the page docs/performance.md has of them."""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
import subprocess
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.peers.charts import draw
from benchmarks.peers.rounds import Measured, figure
from benchmarks.peers.systems import KAFKA, OURS, kafka_version

ROOT = Path(__file__).resolve().parents[2]
DIRECTORY = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "performance.md"
BEGIN = "<!-- begin: benchmarks.peers -->"
END = "<!-- end: benchmarks.peers -->"


def write(measured: Sequence[Measured], rounds: int, directory: Path, *, is_whole: bool) -> None:
    """`is_whole`: no case was left out by hand, so the page gets them too."""
    directory.mkdir(parents=True, exist_ok=True)
    machine = machine_facts(rounds)
    (directory / "peers.json").write_text(json.dumps(document(measured, machine), indent=1) + "\n")
    text = markdown(measured, machine)
    (directory / "peers.md").write_text(text)
    draw(measured, directory)
    if is_whole:
        put_into_page(text, PAGE)


def machine_facts(rounds: int) -> dict[str, Any]:
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "([^"]+)"', java)
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cores": os.cpu_count(),
        "memory_gb": round(pages / 1e9),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "java": found[1] if found else "unknown",
        "kafka": kafka_version(),
        "confluent-kafka": version("confluent-kafka"),
        "rounds": rounds,
    }


def document(measured: Sequence[Measured], machine: dict[str, Any]) -> dict[str, Any]:
    rows = [
        {
            "case": one.case,
            "title": one.title,
            "metric": one.metric.name,
            "unit": one.metric.unit,
            "barnabas": list(one.values[OURS]),
            "kafka": list(one.values[KAFKA]),
            "ratio": one.ratio,
            "ratios": one.ratios,
            "others": [round(part, 3) for part in one.others],
            "target": one.metric.target,
            "more_is_better": one.metric.more_is_better,
            "reached": one.reached,
        }
        for one in measured
    ]
    return {"machine": machine, "results": rows}


def markdown(measured: Sequence[Measured], machine: dict[str, Any]) -> str:
    head = (
        f"{machine['cores']} cores, {machine['memory_gb']} GB, {machine['system']}, CPython {machine['python']},"
        f" Java {machine['java']}; Apache Kafka {machine['kafka']}, confluent-kafka {machine['confluent-kafka']}."
        f" Medians of {rounds_text(measured)} rounds in turns; in brackets the least and greatest ratio of a round."
        f" {others_text(measured)}\n"
    )
    lines = [
        head,
        "| case | | Barnabas | Apache Kafka | ratio | target |",
        "|---|---|---|---|---|---|",
    ]
    for one in measured:
        target = ""
        if one.metric.target is not None:
            bound = "at least" if one.metric.more_is_better else "at most"
            target = f"{bound} {one.metric.target:g}x" + ("" if one.reached else ", **not reached**")
        ratio = "" if one.ratio is None else f"{one.ratio:.2f}x ({min(one.ratios):.2f} - {max(one.ratios):.2f})"
        lines.append(
            f"| {one.title} | {one.metric.name}, {one.metric.unit} | {figure(one.median(OURS))} |"
            f" {figure(one.median(KAFKA))} | {ratio} | {target} |"
        )
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


def put_into_page(text: str, page: Path) -> None:
    """Between its marks."""
    before, _, rest = page.read_text().partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"{page.name} has no place for the results: {BEGIN} ... {END}")
    page.write_text(f"{before}{BEGIN}\n{text}{END}{after}")
