"""The steps of ``barnabas doctor spark``: why a query with ``format("barnabas")`` does not run.

===========  ============================================================  =============================================
step         what a query needs                                            common mistakes
===========  ============================================================  =============================================
pyspark      PySpark 4.3                                                   not installed, another version, SPARK_HOME of
                                                                           another Spark
java         Java 17 or later                                              none, an old one, a wrong JAVA_HOME
workers      an interpreter that has barnabas, of the driver's version     PYSPARK_PYTHON, or python3 on the path, is
                                                                           another one than that of the script
start        byte code in PySpark's archives, to start fast                none, as PySpark is installed
connect      the packages of Spark Connect                                 pyspark without its extra ``connect``
server       a Connect server that has barnabas (``--remote``)             not started, an interpreter without barnabas
tables       deltalake or pyiceberg, for the pipelines' tables             not installed; jars that Spark SQL would need
===========  ============================================================  =============================================
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from barnabas.cli.doctor_checks import check_tcp
from barnabas.cli.finding import Finding

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUPPORTED: Final = "4.3"
CONNECT_PACKAGES: Final = {"grpc": "grpcio", "grpc_status": "grpcio-status", "google.rpc": "googleapis-common-protos"}
CONNECT_PORT: Final = 15_002
INSTALL: Final = "pip install 'barnabas[spark]'"
PROBE: Final = """
import json, sys
found = {"python": sys.executable, "version": list(sys.version_info[:2])}
for module in ("pyspark", "pyarrow", "barnabas.spark.data_source", "pyspark_barnabas"):
    try:
        __import__(module)
    except ImportError as error:
        found["missing"] = str(error)
        break
print(json.dumps(found))
"""
"""Run by the workers' interpreter. Prints its path and version, and the first missing module."""
_PROBE_SECONDS: Final = 120


def examine_spark(environment: Mapping[str, str], remote: str | None, timeout_s: float) -> Iterator[Finding]:
    """Runs all steps. Skips steps that depend on a failed one."""
    found = check_pyspark(environment)
    yield found
    if found.status == "error" and find_spec("pyspark") is None:
        return
    java = check_java(environment)
    yield java
    yield from check_workers(environment)
    yield from check_archives(environment)
    connect = check_connect()
    yield connect
    if remote is not None:
        if connect.status == "ok":
            yield from check_server(remote, timeout_s)
        else:
            yield Finding("server", "skipped", "not checked: the packages of Spark Connect are missing")
    yield from check_tables(environment)


def check_pyspark(environment: Mapping[str, str]) -> Finding:
    """Checks the version of PySpark, and that SPARK_HOME does not name another Spark."""
    try:
        installed = version("pyspark")
    except PackageNotFoundError:
        return Finding("pyspark", "error", f"PySpark is not installed in {sys.executable}", INSTALL)
    if not installed.startswith(f"{SUPPORTED}."):
        return Finding("pyspark", "error", f"PySpark is {installed}; Barnabas needs {SUPPORTED}", INSTALL)
    home = environment.get("SPARK_HOME")
    other = None if home is None else spark_version(Path(home))
    if home is not None and other is None:
        return Finding("pyspark", "error", f"SPARK_HOME is {home}, where there is no Spark", "unset SPARK_HOME")
    if other is not None and other != installed:
        return Finding(
            "pyspark", "error", f"SPARK_HOME has Spark {other}, and PySpark is {installed}", "unset SPARK_HOME"
        )
    return Finding("pyspark", "ok", installed)


def spark_version(home: Path) -> str | None:
    """Returns the version of the Spark in a directory, by the name of its core jar."""
    for jar in home.glob("jars/spark-core_*.jar"):
        match = re.fullmatch(r"spark-core_[\d.]+-(.+)\.jar", jar.name)
        if match is not None:
            return match[1]
    return None


def check_java(environment: Mapping[str, str]) -> Finding:
    from barnabas.spark.java_runtime import JavaMissingError, require_java

    try:
        return Finding("java", "ok", str(require_java(environment)))
    except JavaMissingError as error:
        return Finding("java", "error", str(error))


def check_workers(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Checks the interpreters that may run the tasks of a query.

    A script that imports ``barnabas.spark`` first runs its own; ``spark-submit``, ``spark-pipelines`` and a Connect
    server run ``python3`` of the path, unless PYSPARK_PYTHON is set.
    """
    named = environment.get("PYSPARK_PYTHON")
    if named is not None:
        yield check_interpreter("workers", named, environment, f"unset PYSPARK_PYTHON, or set it to {sys.executable}")
        return
    yield check_interpreter("workers of scripts", sys.executable, environment, INSTALL)
    remedy = f"export PYSPARK_PYTHON={sys.executable} before spark-submit, spark-pipelines or a Connect server"
    found = check_interpreter("workers of spark-submit", "python3", environment, remedy)
    # Only a warning: scripts work.
    yield found if found.status == "ok" else Finding(found.step, "warning", found.what, found.remedy)


def check_interpreter(step: str, python: str, environment: Mapping[str, str], remedy: str) -> Finding:
    """Runs an interpreter and checks that it has what the data source needs, and the driver's version."""
    program = shutil.which(python, path=environment.get("PATH"))
    if program is None:
        return Finding(step, "error", f"the workers' interpreter {python} does not exist", remedy)
    try:
        done = subprocess.run(  # noqa: S603 - the interpreter that Spark would run
            [program, "-c", PROBE],
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=False,
            env=dict(environment),
        )
        found = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return Finding(step, "error", f"the workers' interpreter {program} does not run", remedy)
    return judge_interpreter(step, found, sys.version_info[:2], remedy)


def judge_interpreter(step: str, found: Mapping[str, Any], driver: tuple[int, int], remedy: str) -> Finding:
    """Returns the finding for what `PROBE` printed."""
    python, missing = found["python"], found.get("missing")
    if missing is not None:
        return Finding(step, "error", f"the workers' interpreter {python} cannot load barnabas: {missing}", remedy)
    if tuple(found["version"]) != driver:
        theirs = ".".join(map(str, found["version"]))
        ours = ".".join(map(str, driver))
        return Finding(step, "error", f"the workers run Python {theirs} ({python}), and the driver {ours}", remedy)
    return Finding(step, "ok", f"{python} has barnabas")


def check_archives(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Checks that the Python processes of Spark need not compile PySpark each time they start."""
    from barnabas.spark.python_archive import archives_of, is_compiled

    step, archives = "start of processes", archives_of(environment)
    missing = [archive for archive in archives if not is_compiled(archive)]
    if missing:
        names = ", ".join(archive.name for archive in missing)
        what = f"each Python process of Spark compiles {names} for half a second"
        yield Finding(step, "warning", what, "barnabas doctor spark --compile adds the byte code, once")
    elif archives:
        names = ", ".join(archive.name for archive in archives)
        yield Finding(step, "ok", f"byte code for Python {'.'.join(map(str, sys.version_info[:2]))} in {names}")


def check_connect() -> Finding:
    """Checks the packages that Spark Connect and declared pipelines need."""
    missing = [package for module, package in CONNECT_PACKAGES.items() if not _has(module)]
    if missing:
        what = f"Spark Connect and declared pipelines cannot run: {', '.join(missing)} is not installed"
        return Finding("connect", "warning", what, "pip install 'pyspark[connect,pipelines]'")
    return Finding("connect", "ok", f"grpcio {version('grpcio')}")


def _has(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def check_server(remote: str, timeout_s: float) -> Iterator[Finding]:
    """Checks that a Connect server responds, and that the interpreters of its planner and workers have barnabas."""
    address = urlsplit(remote)
    if address.scheme != "sc" or not address.hostname:
        yield Finding(
            "server", "error", f"{remote} is not the address of a Connect server", "write it as sc://host:15002"
        )
        return
    reached = check_tcp(address.hostname, address.port or CONNECT_PORT, timeout_s, "server")
    if reached.status == "error":
        remedy = "start one: sbin/start-connect-server.sh, or python -m pyspark.sql.connect; or leave out --remote"
        yield Finding("server", "error", f"no Connect server: {reached.what}", remedy)
        return
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        spark = SparkSession.builder.remote(remote).create()
    except PySparkException as error:
        yield Finding("server", "error", f"no session: {_first_line(error)}", "check the server's log")
        return
    try:
        yield from examine_session(spark)
    finally:
        spark.stop()


def examine_session(spark: SparkSession) -> Iterator[Finding]:
    """Checks that the Python processes of a Connect server have barnabas: the planner and the workers."""
    remedy = "install barnabas where the server runs, and start it with PYSPARK_PYTHON set to that interpreter"
    try:
        yield Finding("server", "ok", f"Spark {spark.version}")
        options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "none"}
        # The server's Python process returns the schema, without connecting to a broker.
        _ = spark.read.format("barnabas").options(**options).load().schema
        yield Finding("server planner", "ok", "finds the format barnabas")
    except Exception as error:  # noqa: BLE001 - whatever the server reports is the finding
        text = _first_line(error)
        if "DATA_SOURCE_NOT_FOUND" in text:
            text = "the server's interpreter has no barnabas (DATA_SOURCE_NOT_FOUND)"
        yield Finding("server planner", "error", text, remedy)
        return
    try:
        found = json.loads(probe_workers(spark))
    except Exception as error:  # noqa: BLE001 - whatever the server reports is the finding
        yield Finding("server workers", "error", _first_line(error), remedy)
        return
    yield judge_interpreter("server workers", found, sys.version_info[:2], remedy)


def probe_workers(spark: SparkSession) -> str:
    """Runs `PROBE` in a worker of a session."""
    from pyspark.sql import functions as sf

    def probe(code: str) -> str:
        import contextlib
        import io

        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, {})  # noqa: S102 - our own text, in a worker that has none of our modules
        return printed.getvalue()

    probed = sf.udf(probe, "string")
    (row,) = spark.range(1).select(probed(sf.lit(PROBE)).alias("found")).collect()
    return str(row["found"])


def check_tables(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Checks what the pipelines' tables need, and says whether Spark SQL can read them by itself."""
    for step, package, extra in (("delta", "deltalake", "spark"), ("iceberg", "pyiceberg", "lake")):
        if find_spec(package) is None:
            what = f"{package} is not installed: pipelines cannot write {step} tables"
            yield Finding(step, "warning", what, f"pip install 'barnabas[{extra}]'")
            continue
        jars = _jars(environment, step)
        sql = f"{jars[0].name} for Spark SQL" if jars else f'no jar: pipelines need none, format("{step}") in SQL does'
        yield Finding(step, "ok", f"{package} {version(package)}; {sql}")


def _jars(environment: Mapping[str, str], name: str) -> list[Path]:
    spec = find_spec("pyspark")
    homes = [environment.get("SPARK_HOME"), None if spec is None or spec.origin is None else Path(spec.origin).parent]
    return [jar for home in homes if home is not None for jar in sorted(Path(home).glob(f"jars/{name}-spark*.jar"))]


def _first_line(error: BaseException) -> str:
    from barnabas.spark.pipelines.runner import cause_of

    return cause_of(error)
