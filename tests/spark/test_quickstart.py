"""The lines about Spark in the quick start, as a user runs them: a script, and no activated environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas import EmbeddedBroker, KafkaProducer
from documents import ADDRESS, blocks_of
from spark.conftest import unavailable

PATH = "/usr/local/bin:/usr/bin:/bin"
LIMIT_S = 600


@pytest.mark.mechanism("S12")
def test_the_lines_about_spark_need_no_activated_environment(tmp_path: Path) -> None:
    if shutil.which("java", path=PATH) is None:
        unavailable("Spark needs Java 17 or later")
    blocks = [block for block in blocks_of("quickstart.md") if block.heading == "Spark"]
    (code,) = [block.code for block in blocks if block.language == "python"]
    (printed,) = [block.code for block in blocks if block.language == "text"]
    with EmbeddedBroker() as broker:
        with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for tea in (b"assam", b"darjeeling"):
                producer.send("teas", tea)
        script = tmp_path / "script.py"
        script.write_text(code.replace(ADDRESS, broker.bootstrap_servers))
        done = subprocess.run(
            [sys.executable, str(script)],
            # Nothing of the shell's: no virtual environment, no PYSPARK_PYTHON, no JAVA_HOME.
            env={
                "PATH": PATH,
                "HOME": str(tmp_path),
                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
            cwd=tmp_path,
        )
    assert done.returncode == 0, done.stderr[-5_000:]
    assert done.stdout.strip() == printed.strip()
