"""The results of a run: a JSON document, tables in Markdown, charts, and the page docs/performance.md has of them.

Everything but the document is made from the document, so that it can be made again: ``--report``.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.peers.budget import Timing
from benchmarks.peers.case import Metric
from benchmarks.peers.charts import draw
from benchmarks.peers.rounds import Failed, Measured
from benchmarks.peers.run import Kept, Run
from benchmarks.peers.systems import KAFKA, OURS, kafka_version
from benchmarks.peers.tables import markdown

ROOT = Path(__file__).resolve().parents[2]
DIRECTORY = ROOT / "benchmarks" / "results"
PARTS = DIRECTORY / "tmp"
DOCUMENT = "peers.json"
PAGE = ROOT / "docs" / "performance.md"
BEGIN = "<!-- begin: benchmarks.peers -->"
END = "<!-- end: benchmarks.peers -->"
PACKAGES = ("barnabas", "confluent-kafka", "kafka-python", "aiokafka", "pyspark")


def write(run: Run, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    keep_earlier(run, directory)
    (directory / DOCUMENT).write_text(json.dumps(document(run), indent=1) + "\n")
    report(directory)


def report(directory: Path, page: Path = PAGE) -> None:
    """Makes the tables, the charts, and the page from the document. The page is for whole runs in the usual place."""
    run = loaded(json.loads((directory / DOCUMENT).read_text()))
    (directory / "peers.md").write_text(markdown(run))
    draw(run.measured, directory)
    if run.is_whole and directory.resolve() == DIRECTORY:
        put_into_page(markdown(run, os.path.relpath(directory, page.parent)), page)


def last_run(directory: Path) -> Run | None:
    """What is there from before, if it can be read."""
    try:
        return loaded(json.loads((directory / DOCUMENT).read_text()))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keep_earlier(run: Run, directory: Path) -> None:
    """Profiles that were made before stay as long as there are no newer ones, and so do times, for estimates."""
    last = last_run(directory)
    if last is None:
        return
    run.timings = {**last.timings, **run.timings}
    if not run.profiles:
        there = {key: kept for key, kept in last.profiles.items() if (directory / kept.file).exists()}
        run.profiles = {key: replace(kept, is_earlier=True) for key, kept in there.items()}


def machine_facts() -> dict[str, Any]:
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False, timeout=60).stderr
    found = re.search(r'version "([^"]+)"', java)
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cores": os.cpu_count(),
        "processor": processor(),
        "memory_gb": round(pages / 1e9),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "java": found[1] if found else "unknown",
        "kafka": kafka_version(),
        **{name: found_version for name in PACKAGES if (found_version := _version(name))},
    }


def processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else ""


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def document(run: Run) -> dict[str, Any]:
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
        for one in run.measured
    ]
    return {
        "machine": run.machine,
        "is_whole": run.is_whole,
        "seconds": round(run.seconds),
        "results": rows,
        "failed": [asdict(one) for one in run.failed],
        "profiles": {key: asdict(kept) for key, kept in run.profiles.items()},
        "timings": {key: [round(one.seconds, 1), one.rounds] for key, one in run.timings.items()},
    }


def loaded(found: dict[str, Any]) -> Run:
    """The run that a document is of. One that was written before there were profiles in it has none."""
    measured = [
        Measured(
            row["case"],
            row["title"],
            Metric(row["metric"], row["unit"], row["more_is_better"], row["target"]),
            {OURS: row["barnabas"], KAFKA: row["kafka"]},
            row["others"],
        )
        for row in found["results"]
    ]
    return Run(
        found["machine"],
        measured,
        [Failed(**one) for one in found.get("failed", ())],
        {key: Timing(*one) for key, one in found.get("timings", {}).items()},
        {key: Kept(**kept) for key, kept in found.get("profiles", {}).items()},
        found.get("seconds", 0),
        found.get("is_whole", True),
    )


def put_into_page(text: str, page: Path) -> None:
    """Between its marks."""
    before, _, rest = page.read_text().partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"{page.name} has no place for the results: {BEGIN} ... {END}")
    page.write_text(f"{before}{BEGIN}\n{text}{END}{after}")
