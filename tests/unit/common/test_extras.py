"""A feature without its extra names the extra."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from barnabas.common.extras import extra

PREAMBLE = """
import sys

EXTRAS = {"numpy", "pyarrow", "pandas", "pyspark", "matplotlib", "deltalake", "pyiceberg", "fastavro"}

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in EXTRAS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""
PRODUCER = "from barnabas import KafkaProducer, MockProducer\n"
CONSUMER = "from barnabas import KafkaConsumer\n"
CASES = {
    "send_table": (
        PRODUCER + "KafkaProducer(bootstrap_servers='127.0.0.1:1').send_table('t', object())",
        "send_table needs numpy, which is not installed: pip install 'barnabas[arrow]'",
    ),
    "mock": (
        PRODUCER + "MockProducer().send_table('t', object())",
        "send_table needs numpy, which is not installed: pip install 'barnabas[arrow]'",
    ),
    "poll_table": (
        CONSUMER + "KafkaConsumer('t', bootstrap_servers='127.0.0.1:1').poll_table()",
        "poll_table needs numpy, which is not installed: pip install 'barnabas[arrow]'",
    ),
    "register": (
        "import barnabas.spark; barnabas.spark.register(None)",
        "barnabas.spark needs pyspark, which is not installed: pip install 'barnabas[spark]'",
    ),
    "pipeline": (
        "from barnabas.cli.main import run; run(['pipeline', 'run', 'requests', '--once'])",
        "error: a Spark session needs pyspark, which is not installed: pip install 'barnabas[spark]'",
    ),
    "report": (
        "from barnabas.cli.main import run; run(['report'])",
        "error: a report needs pyarrow, which is not installed: pip install 'barnabas[report]'",
    ),
    "image": (
        "from barnabas.report.chart_png import write_png; write_png(None, None)",
        "an image of a chart needs matplotlib, which is not installed: pip install 'barnabas[report]'",
    ),
    "delta": (
        "from barnabas.spark.pipelines.tables import pipeline_store as S; S('/x', 'a').open_named('b', 'b').exists()",
        "a Delta Lake table needs deltalake, which is not installed: pip install 'barnabas[spark]'",
    ),
}


@pytest.mark.parametrize(("program", "message"), CASES.values(), ids=list(CASES))
def test_the_extra_is_named(program: str, message: str) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "JAVA_HOME": ""}
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE + program], env=env, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.stderr.splitlines()[-1].removeprefix("ImportError: ") == message


def test_other_errors_are_left_alone() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"barnabas\.missing"), extra("arrow", "it"):
        import barnabas.missing  # type: ignore[import-not-found]  # noqa: F401
    with pytest.raises(ZeroDivisionError), extra("arrow", "it"):
        _ = 1 / 0
