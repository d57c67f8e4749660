"""``python -m benchmarks.peers [--quick] [--only TEXT]``: Barnabas and Apache Kafka, one run on this machine.

Ends with 1 if a target was not reached or a case failed. The results go to benchmarks/results; those of a part, and
those of a run that was interrupted, as far as it has come, to benchmarks/results/tmp.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.broker import KafkaProcess, compiled
from benchmarks.peers import results
from benchmarks.peers.budget import QUICK_ROUND_S, ROUND_S, Budget, clock_text, estimate
from benchmarks.peers.case import Case
from benchmarks.peers.cases import full_cases, quick_cases, warm_up_cases
from benchmarks.peers.profiles import keep_profiles
from benchmarks.peers.rounds import BUSY_PART, Failed, Measured, measure, reason_of, revive, warm_up
from benchmarks.peers.run import Run
from benchmarks.peers.start_case import loaded_memory, start_up_rounds
from benchmarks.peers.systems import OURS, AnyBroker, both

ROUNDS = 5
FURTHER_ROUNDS = 3
"""Of cases without a target."""
QUICK_ROUNDS = 3
BUDGET_S = 27 * 60
QUICK_BUDGET_S = 5 * 60
INTERRUPTED = 130


def tell(text: str) -> None:
    print(text, flush=True)


class Conductor:
    """Takes the cases one after the other and keeps what there is; it has the time, the rounds, and the results."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._quick: bool = arguments.quick
        self._rounds: int | None = arguments.rounds
        self._output: Path | None = arguments.output
        self._profile: bool = (not self._quick) if arguments.profile is None else arguments.profile
        all_cases = quick_cases() if self._quick else full_cases()
        self._cases = [case for case in all_cases if arguments.only in case.key]
        self._with_start = arguments.only in "start-up"
        self._is_whole = not arguments.only
        self._budget = Budget(QUICK_BUDGET_S if self._quick else BUDGET_S)
        last = results.last_run(self._output or results.DIRECTORY)
        planned = [(self._timing_key(case), self._rounds_of(case)) for case in self._cases]
        starts = self._start_rounds if self._with_start else 0
        guess = QUICK_ROUND_S if self._quick else ROUND_S
        self._expected_s = estimate(planned, last.timings if last else {}, starts, guess)
        self.run = Run(results.machine_facts())

    @property
    def _place(self) -> Path:
        """Results that are kept are of a whole run; those of a part go to a directory of their own."""
        return self._output or (results.DIRECTORY if self.run.is_whole else results.PARTS)

    @property
    def _start_rounds(self) -> int:
        return self._rounds or (QUICK_ROUNDS if self._quick else ROUNDS)

    def _rounds_of(self, case: Case) -> int:
        if self._rounds:
            return self._rounds
        if self._quick:
            return QUICK_ROUNDS
        return ROUNDS if any(metric.target is not None for metric in case.metrics) else FURTHER_ROUNDS

    def _timing_key(self, case: Case) -> str:
        """A case of the same name has less to do in a quick run."""
        return f"quick: {case.key}" if self._quick else case.key

    def conduct(self) -> int:
        count = len(self._cases) + self._with_start
        tell(f"{count} cases, about {clock_text(self._expected_s)} minutes")
        interrupted = False
        self.run.is_whole = self._is_whole
        try:
            self._conduct()
        except KeyboardInterrupt:
            interrupted = True
            self.run.is_whole = False
            tell("interrupted; what there is gets written")
        self.run.seconds = self._budget.elapsed_s
        if self.run.measured or self.run.failed:
            results.write(self.run, self._place)
        missed, failed = self.run.missed, self.run.failed
        took = f"{clock_text(self.run.seconds)} minutes (expected: {clock_text(self._expected_s)})"
        tell(f"\n{len(missed)} targets not reached, {len(failed)} cases failed; {took}")
        if interrupted:
            return INTERRUPTED
        return 1 if missed or failed else 0

    def _conduct(self) -> None:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
            directory = Path(name)
            pycache = compiled(directory / "pycache")
            if self._with_start:
                self._step("start-up", lambda: start_up_rounds(directory, pycache, self._start_rounds))
            if self._cases:
                with both(directory, pycache) as servers:
                    self._on_both(servers)

    def _on_both(self, servers: dict[str, AnyBroker]) -> None:
        self._step("warm-up", lambda: warm_up(warm_up_cases(), servers, tell))
        for case in self._cases:
            self._take(case, servers)
        self._step("loaded-memory", lambda: loaded_memory(servers))
        if self._profile:
            self.run.profiles = keep_profiles(self.run.measured, self._cases, servers[OURS], self._place, tell)

    def _step(self, name: str, work: Callable[[], Sequence[Measured]]) -> None:
        """Something that is not a case, and may fail like one."""
        try:
            self._keep(work())
        except Exception as error:  # noqa: BLE001 - it is reported, and the run goes on
            self._fail(name, name, reason_of(error))

    def _take(self, case: Case, servers: dict[str, AnyBroker]) -> None:
        if self._budget.is_over:
            self._fail(case.key, case.title, "left out: the time for all cases was over")
            return
        outcome = measure(case, servers, self._rounds_of(case), self._budget)
        self._keep(outcome.measured)
        self.run.timings[self._timing_key(case)] = outcome.timing
        busy = max((part for one in outcome.measured for part in one.others), default=0.0)
        if busy > BUSY_PART:
            tell(f"  others had up to {busy:.0%} of the cores meanwhile")
        if outcome.failure is not None:
            self._fail(case.key, case.title, outcome.failure)
            self._step("a broker", lambda: revive(servers, tell))
        tell(f"  [{clock_text(self._budget.elapsed_s)} of about {clock_text(self._expected_s)}]")

    def _keep(self, measured: Sequence[Measured]) -> None:
        self.run.measured += measured
        for one in measured:
            tell(str(one))

    def _fail(self, key: str, title: str, reason: str) -> None:
        self.run.failed.append(Failed(key, title, reason))
        tell(f"FAILED: {title}: {reason}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the cases with a target, in under five minutes")
    parser.add_argument("--only", default="", metavar="TEXT", help="only cases with this in their key")
    parser.add_argument(
        "--rounds", type=int, help=f"{ROUNDS}; {FURTHER_ROUNDS} of cases without a target; {QUICK_ROUNDS} with --quick"
    )
    parser.add_argument(
        "--profile",
        action=argparse.BooleanOptionalAction,
        help="run the worst cases once more under perf and py-spy; without --quick that is what happens",
    )
    parser.add_argument("--output", type=Path, help="where the results go, instead of benchmarks/results")
    parser.add_argument("--report", action="store_true", help="run nothing; make tables, charts and page once more")
    arguments = parser.parse_args()
    if arguments.report:
        results.report(arguments.output or results.DIRECTORY)
        return 0
    if not KafkaProcess.is_available():
        parser.error("Apache Kafka is the peer, and is not here: it takes Java and `make jars`")
    # A run that is asked to end writes what it has, as one that is interrupted.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return Conductor(arguments).conduct()


if __name__ == "__main__":
    sys.exit(main())
