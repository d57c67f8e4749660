"""``python -m benchmarks [NAME ...]``: runs the benchmarks and says which targets were reached."""

from __future__ import annotations

import argparse
import importlib
import platform
import sys

from benchmarks.measure import Row, print_rows

SUITES = (
    "protocol",
    "records",
    "columns",
    "metrics",
    "timer",
    "network",
    "connections",
    "log",
    "broker",
    "producer",
    "consumer",
    "quotas",
    "coordinators",
    "request_log",
    "embedded",
    "hostile",
    "tls",
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="NAME", help=f"of {', '.join(SUITES)}; all when left out")
    arguments = parser.parse_args()
    unknown = set(arguments.suites) - set(SUITES)
    if unknown:
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    print(f"Python {platform.python_version()} on {platform.system()} {platform.machine()}")
    missed: list[Row] = []
    for name in arguments.suites or SUITES:
        rows: list[Row] = importlib.import_module(f"benchmarks.{name}").run()
        print(f"\n== {name}")
        print_rows(rows)
        missed += [row for row in rows if row.reached is False]
    print(f"\n{len(missed)} target{'' if len(missed) == 1 else 's'} not reached")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
