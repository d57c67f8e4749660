"""``python -m benchmarks.peers [--quick] [--only TEXT]``: Barnabas and Apache Kafka, one run on this machine.

Ends with 1 if a target was not reached. The results go to benchmarks/results.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.broker import KafkaProcess, compiled
from benchmarks.peers import results
from benchmarks.peers.cases import full_cases, quick_cases, warm_up_cases
from benchmarks.peers.profiles import keep_profiles
from benchmarks.peers.rounds import Budget, Measured, measure, warm_up
from benchmarks.peers.start_case import loaded_memory, start_up_rounds
from benchmarks.peers.systems import both

ROUNDS = 5
QUICK_ROUNDS = 3
BUDGET_S = 25 * 60
QUICK_BUDGET_S = 5 * 60


def tell(text: str) -> None:
    print(text, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the cases with a target, in under five minutes")
    parser.add_argument("--only", default="", metavar="TEXT", help="only cases with this in their key")
    parser.add_argument("--rounds", type=int, help=f"{ROUNDS}, or {QUICK_ROUNDS} with --quick")
    parser.add_argument("--output", type=Path, default=results.DIRECTORY, help="where the results go")
    arguments = parser.parse_args()
    if not KafkaProcess.is_available():
        parser.error("Apache Kafka is the peer, and is not here: it takes Java and `make jars`")
    rounds = arguments.rounds or (QUICK_ROUNDS if arguments.quick else ROUNDS)
    budget = Budget(QUICK_BUDGET_S if arguments.quick else BUDGET_S)
    measured: list[Measured] = []
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        pycache = compiled(directory / "pycache")
        if arguments.only in "start-up":
            measured += start_up_rounds(directory, pycache, rounds, tell)
        cases = [case for case in (quick_cases() if arguments.quick else full_cases()) if arguments.only in case.key]
        if cases:
            with both(directory, pycache) as servers:
                warm_up(warm_up_cases(), servers, tell)
                for case in cases:
                    measured += measure(case, servers, rounds, budget, tell)
                measured += loaded_memory(servers, tell)
                results.write(measured, rounds, arguments.output, is_whole=not arguments.only)
                if not arguments.quick:
                    keep_profiles(measured, cases, servers, arguments.output, tell)
        else:
            results.write(measured, rounds, arguments.output, is_whole=not arguments.only)
    missed = [one for one in measured if one.reached is False]
    print(f"\n{len(missed)} targets not reached; {budget.elapsed_s:.0f} s")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
