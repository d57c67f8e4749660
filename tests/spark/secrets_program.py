"""Runs queries with credentials, and prints all that Spark shows of them to others, as JSON.

It runs in a process of its own, because Spark's web interface and event log are settings of a session:
``python secrets_program.py SETTINGS DIRECTORY``, where SETTINGS is a JSON file with the ``kafka.*`` options.
"""

from __future__ import annotations

import io
import json
import sys
import urllib.request
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from barnabas.spark import register

TOPIC = "secrets"


def main() -> None:
    settings = json.loads(Path(sys.argv[1]).read_text())
    directory = Path(sys.argv[2])
    events = directory / "events"
    events.mkdir()
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "true")
        .config("spark.ui.port", "0")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.compress", "false")
        .config("spark.eventLog.dir", events.as_uri())
        .config("spark.local.dir", str(directory / "local"))
        .getOrCreate()
    )
    register(spark)
    shown: dict[str, str] = {}
    made = spark.range(10).selectExpr("CAST(id AS STRING) AS value")
    made.write.format("barnabas").options(**settings, topic=TOPIC).save()
    rows = spark.read.format("barnabas").options(**settings, subscribe=TOPIC).load()
    shown["explain"] = explained(rows)
    count = rows.count()
    streamed = (
        spark.readStream.format("barnabas").options(**settings, subscribe=TOPIC, startingOffsets="earliest").load()
    )
    shown["explain of a stream"] = explained(streamed)
    query = (
        streamed.select("value")
        .writeStream.format("barnabas")
        .options(**settings, topic=f"{TOPIC}-copy", checkpointLocation=str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(300)
    shown["progress"] = json.dumps([str(one) for one in query.recentProgress])
    copied = spark.read.format("barnabas").options(**settings, subscribe=f"{TOPIC}-copy").load().count()
    wrong = settings | {"kafka.sasl.mechanism": "NONSENSE"}
    try:
        spark.read.format("barnabas").options(**wrong, subscribe=TOPIC).load().count()
    except Exception as error:  # noqa: BLE001 - its text is what counts
        shown["error"] = str(error)
    shown |= interface(spark)
    spark.stop()
    shown |= {f"event log {path.name}": path.read_text() for path in events.rglob("*") if path.is_file()}
    checkpoint = [path for path in (directory / "checkpoint").rglob("*") if path.is_file()]
    shown |= {str(path.relative_to(directory)): path.read_text(errors="replace") for path in checkpoint}
    print(json.dumps({"rows": count, "copied": copied, "shown": shown}))


def explained(rows: DataFrame) -> str:
    text = io.StringIO()
    with redirect_stdout(text):
        for mode in ("simple", "extended", "formatted", "cost"):
            rows.explain(mode=mode)
    return text.getvalue() + str(rows._jdf.queryExecution().toString())


def interface(spark: SparkSession) -> dict[str, str]:
    """The pages of the web interface, and what its REST interface returns."""
    context: Any = spark.sparkContext
    api = f"/api/v1/applications/{context.applicationId}"
    paths = [
        "/SQL/",
        "/StreamingQuery/",
        "/jobs/",
        "/stages/",
        "/environment/",
        f"{api}/sql?details=true&planDescription=true&length=1000",
        f"{api}/environment",
        f"{api}/jobs",
        f"{api}/stages?details=true",
    ]
    pages = {path: fetch(context.uiWebUrl + path) for path in paths}
    for execution in json.loads(pages[paths[5]]):
        path = f"/SQL/execution/?id={execution['id']}"
        pages[path] = fetch(context.uiWebUrl + path)
    return pages


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as response:
        return str(response.read().decode())


if __name__ == "__main__":
    main()
