"""``barnabas doctor``: finds out why a client cannot connect, step by step.

    barnabas doctor -b kafka.example.com:9092
    barnabas doctor --wait 30                     # returns as soon as the broker serves
    barnabas doctor spark --remote sc://spark.example.com:15002

A client that cannot connect reports "disconnected", for any of a dozen reasons. This command takes the same steps as a
client, one at a time, and reports the step that fails and what to do about it. The steps are in
`barnabas.cli.doctor_checks`. The first lines describe this installation: whether compiled code runs, and the Java that
Spark uses.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Final

from barnabas.cli.admin import add_common
from barnabas.cli.arguments import add_command
from barnabas.cli.console import CommandError, UsageError, is_colored, say
from barnabas.common.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from barnabas.cli.arguments import Commands
    from barnabas.cli.cluster import Cluster
    from barnabas.cli.finding import Finding

DESCRIPTION: Final = """Checks a bootstrap address in the same steps as a client, and reports what is wrong: DNS, TCP,
TLS and certificates, whether it is Kafka, SASL, the addresses that brokers advertise,
controller, internal topics, authorization.

With the word spark it checks what Spark queries need instead: PySpark, Java, the workers' interpreter,
Spark Connect, table formats.

Exit code 0: no errors. Exit code 1: a check failed, and the last lines say what to do."""
RETRY_MS: Final = 250
"""The pause between two tries of ``--wait``."""
CLUSTER: Final = "cluster"
SPARK: Final = "spark"
PARTS: Final = (CLUSTER, SPARK)
_MARKS: Final = {"ok": ("ok", "32"), "warning": ("!!", "33"), "error": ("no", "31"), "skipped": ("--", "2")}


def add_doctor(commands: Commands) -> None:
    parser = add_command(commands, "doctor", doctor_command, "find out why a client cannot connect", DESCRIPTION)
    parser.add_argument(
        "part", nargs="?", choices=PARTS, default=CLUSTER, help="what to check: the cluster, if left out, or spark"
    )
    add_common(parser)
    parser.add_argument(
        "--remote", metavar="URL", help="spark: a Connect server to check, such as sc://host:15002; or $SPARK_REMOTE"
    )
    parser.add_argument(
        "--compile",
        action="store_true",
        dest="compiles",
        help="spark: add byte code to PySpark's archives first, once, so that its Python processes start faster",
    )
    parser.add_argument(
        "--timeout", type=float, default=5.0, metavar="SECONDS", help="the time limit of each step; default: 5"
    )
    parser.add_argument(
        "--wait",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="repeat the checks for up to this long until none fails, as after starting a broker; default: 0",
    )


def doctor_command(
    part: str, cluster: Cluster, timeout: float, wait: float, as_json: bool, remote: str | None, compiles: bool
) -> None:
    """Runs all checks and prints the findings."""
    if timeout <= 0:
        raise UsageError(f"--timeout must be positive: {timeout:g}")
    if wait < 0:
        raise UsageError(f"--wait must not be negative: {wait:g}")
    if part != SPARK and remote is not None:
        raise UsageError("--remote is for barnabas doctor spark")
    if part != SPARK and compiles:
        raise UsageError("--compile is for barnabas doctor spark")
    if compiles:
        _compile_archives()
    until = SYSTEM_CLOCK.hi_res_milliseconds() + 1_000 * wait
    while True:
        findings: list[Finding] = []
        # With --wait, only the findings of the last try are shown.
        shows = not as_json and wait == 0
        for finding in _examine_spark(remote, timeout) if part == SPARK else _examine_cluster(cluster, timeout):
            findings.append(finding)
            if shows:
                say(_line(finding), sys.stdout)
        wrong = [finding for finding in findings if finding.status == "error"]
        left = until - SYSTEM_CLOCK.hi_res_milliseconds()
        if not wrong or left <= 0:
            break
        SYSTEM_CLOCK.sleep(min(RETRY_MS, left))
    if as_json:
        from barnabas.cli.output import print_json

        print_json([finding.as_dict() for finding in findings])
    elif not shows:
        say("".join(map(_line, findings)), sys.stdout)
    if wrong:
        raise CommandError(f"{len(wrong)} of {len(findings)} checks failed; the first: {wrong[0].step}")


def _examine_cluster(cluster: Cluster, timeout_s: float) -> Iterator[Finding]:
    from barnabas.cli.doctor_checks import examine, examine_installation

    servers = [part.strip() for part in cluster.bootstrap.split(",") if part.strip()]
    if not servers:
        raise UsageError("--bootstrap-server must not be empty")
    return chain(examine_installation(), examine(servers, timeout_s, cluster.properties()))


def _examine_spark(remote: str | None, timeout_s: float) -> Iterator[Finding]:
    # Copied first, because the import of barnabas.spark sets some of these variables.
    environment = dict(os.environ)
    from barnabas.cli.doctor_spark import examine_spark

    given = environment.get("SPARK_REMOTE", "")
    return examine_spark(environment, remote or (given if given.startswith("sc://") else None), timeout_s)


def _compile_archives() -> None:
    from barnabas.spark.python_archive import archives_of, compile_archive

    for archive in archives_of(os.environ):
        try:
            compile_archive(archive)
        except OSError as error:
            raise CommandError(f"{archive} cannot be replaced: {error}") from None


def _line(finding: Finding) -> str:
    """Returns one line for the finding, and a second one for its remedy."""
    mark, color = _MARKS[finding.status]
    if is_colored(sys.stdout):
        mark = f"\x1b[{color}m{mark}\x1b[0m"
    text = f"{mark}  {finding.step:<26} {finding.what}\n"
    return text + (f"    {'':<26} -> {finding.remedy}\n" if finding.remedy else "")
