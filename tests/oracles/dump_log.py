"""What ``kafka-dump-log`` makes of the files of a data directory."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from oracles.kafka_tools import KafkaTools

_COMPLAINT: Final = re.compile(
    r"mismatch|out of order|non-consecutive|invalid|isvalid: false|no log entries|exception|error|could not|unknown",
    re.IGNORECASE,
)
_SUFFIXES: Final = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint")


def files_of(*directories: Path) -> list[Path]:
    """The files of all logs in these log directories that the tool can read, but for those of deleted logs."""
    return sorted(
        file
        for directory in directories
        for file in directory.glob("*-*/*")
        if file.suffix in _SUFFIXES and not file.parent.name.endswith(("-delete", "-stray"))
    )


def dump(tools: KafkaTools, files: Iterable[Path], *options: str) -> str:
    """All of it, down to each record."""
    names = ",".join(map(str, files))
    return tools.run("kafka-dump-log", "--deep-iteration", "--print-data-log", *options, "--files", names)


def complaints(tools: KafkaTools, directories: Iterable[Path]) -> list[str]:
    """Everything in the tool's output about these log directories that says that something is wrong."""
    files = files_of(*directories)
    metadata = [file for file in files if file.parent.name.startswith("__cluster_metadata-")]
    metadata += [file for directory in directories for file in directory.glob("bootstrap.checkpoint")]
    data = [file for file in files if file not in metadata]
    indexes = [file for file in files if file.suffix in {".index", ".timeindex"}]
    outputs = [
        dump(tools, metadata, "--cluster-metadata-decoder"),
        dump(tools, data),
        dump(tools, indexes, "--verify-index-only"),
    ]
    sane = dump(tools, indexes, "--index-sanity-check")
    verdicts = ("passed sanity check.", "is empty.")
    found = [f"{file}: not sane" for file in indexes if not any(f"{file} {said}" in sane for said in verdicts)]
    # The output has the records in it, so that they must not look like a complaint.
    return found + [line for output in outputs for line in output.splitlines() if _COMPLAINT.search(line)]
