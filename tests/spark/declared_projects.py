"""Declared projects for tests: written by the command, with settings that suit a short run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from barnabas.cli.main import run

JAVA = "spark.driver.extraJavaOptions       "


class Project:
    """A project in a directory."""

    def __init__(self, directory: Path, bootstrap: str) -> None:
        self.directory = directory
        assert run(["pipeline", "init", str(directory), "-b", bootstrap]) == 0
        defaults = directory / "conf" / "spark-defaults.conf"
        # Queries of a test are too short for the optimizing compiler.
        fast = defaults.read_text().replace(JAVA, f"{JAVA}-XX:+UseSerialGC -XX:TieredStopAtLevel=1 ")
        defaults.write_text(f"{fast}\nspark.driver.memory 1g\n")
        # On a busy machine Python processes start too slowly for Spark, which gives them ten seconds.
        self.set("spark.sql.pipelines.maxFlowRetryAttempts", "5")

    def set(self, name: str, value: str) -> None:
        spec = self.directory / "spark-pipeline.yml"
        spec.write_text(f'{spec.read_text()}  {name}: "{value}"\n')

    def refresh(self, *arguments: str) -> int:
        # A worker that takes ten seconds to start is tried again.
        return run(["pipeline", "refresh", str(self.directory), "--remote", "local[2,4]", *arguments])

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Read without Spark, from the files of the table."""
        rows: list[dict[str, Any]] = pq.read_table(self.directory / "tables" / table).to_pylist()
        return rows
