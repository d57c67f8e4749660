"""``kill -9`` of the broker under transactions, over and over: no client waits for ever when the broker is back.

A response, a wake-up or a marker that is lost shows as a client that does nothing for longer than `LIMIT_S`, although
the broker serves. Their own request time-outs are longer than that. In the end, each transaction is visible as a whole
and once, or not at all, as its client was told.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from benchmarks.broker_process import BrokerProcess, source_environment
from benchmarks.waiting import WaitedInVainError, until
from benchmarks.wire_client import WireClient

from system.committed_reader import CommittedReader

TOPIC, PARTITIONS = "t", 2
LIMIT_S = 90.0
OVERRIDES = {"offsets.topic.num.partitions": 3, "transaction.state.log.num.partitions": 3}


class Writer:
    """A process that writes transactions (:mod:`transaction_writer`)."""

    def __init__(self, kind: str, name: str, bootstrap: str, directory: Path) -> None:
        self.name = name
        self._output = directory / f"{name}.out"
        self._errors = directory / f"{name}.err"
        program = Path(__file__).with_name("transaction_writer.py")
        command = [sys.executable, str(program), kind, bootstrap, TOPIC, str(PARTITIONS), name]
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            self.process = subprocess.Popen(command, stdout=output, stderr=errors, env=source_environment())
        self._position = 0
        self.outcomes: dict[int, str] = {}
        self.longest: tuple[float, str] = (0.0, "")

    def read(self) -> int:
        """Takes in what it has said since; how many transactions have ended meanwhile."""
        before = len(self.outcomes)
        with self._output.open("rb") as output:
            output.seek(self._position)
            for line in output:
                if not line.endswith(b"\n"):
                    break
                self._position += len(line)
                said: dict[str, Any] = json.loads(line)
                if "outcome" in said:
                    self.outcomes[said["number"]] = said["outcome"]
                elif "ended" in said:
                    self.longest = max(self.longest, (said["seconds"], said["ended"]))
        return len(self.outcomes) - before

    def stacks(self) -> str:
        """Where its threads are, and what it did last."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGUSR1)
            until(lambda: "most recent call first" in self._errors.read_text(), "the stacks are there", LIMIT_S)
        last = self._output.read_text().splitlines()[-5:]
        return "\n".join([self.name, *last, self._errors.read_text()[-5000:]])


def await_progress(writers: list[Writer]) -> None:
    """Returns when each has ended two transactions: the first may have begun before the broker was killed."""
    left = dict.fromkeys(writers, 2)

    def is_done() -> bool:
        for writer in list(left):
            assert writer.process.poll() is None, writer.stacks()
            left[writer] -= writer.read()
            if left[writer] <= 0:
                del left[writer]
        return not left

    try:
        until(is_done, "all clients go on", LIMIT_S, pause_s=0.01)
    except WaitedInVainError as error:
        stacks = "\n\n".join(writer.stacks() for writer in left)
        raise AssertionError(f"{len(left)} clients are stuck: {error}\n{stacks}") from None


@pytest.mark.mechanism("P14")
@pytest.mark.parametrize("rounds", [pytest.param(3, id="3"), pytest.param(200, id="200", marks=pytest.mark.nightly)])
def test_no_client_waits_for_ever_after_the_broker_is_back(rounds: int, tmp_path: Path, record_property: Any) -> None:
    seed = int(os.environ.get("CRASH_SEED", random.randrange(1 << 32)))
    record_property("seed", seed)
    print(f"CRASH_SEED={seed}")
    chance = random.Random(seed)
    broker = BrokerProcess(tmp_path / "data", output=tmp_path / "broker.log", overrides=OVERRIDES)
    with ExitStack() as stack:
        broker.start()
        stack.callback(broker.kill)
        with WireClient(broker.bootstrap_servers) as client:
            client.create_topic(TOPIC, PARTITIONS)
        writers = []
        for kind, name in (("ours", "ours-1"), ("ours", "ours-2"), ("confluent", "confluent-1")):
            writers.append(Writer(kind, name, broker.bootstrap_servers, tmp_path))
            stack.callback(writers[-1].process.kill)
        for _ in range(rounds):
            await_progress(writers)
            time.sleep(chance.uniform(0, 0.3))  # a random moment, not a wait
            broker.kill()
            for writer in writers:
                writer.read()  # what ended before the kill does not count
            broker.start()
        await_progress(writers)
        for writer in writers:
            writer.process.kill()
            writer.process.wait(LIMIT_S)
            writer.read()
            print(writer.name, Counter(writer.outcomes.values()), "longest call:", writer.longest)
        check_committed(broker.bootstrap_servers, writers)
        assert "Traceback" not in broker.text()


def check_committed(bootstrap: str, writers: list[Writer]) -> None:
    """Each partition has each transaction that is said to be committed, once and in order, and none that is not."""
    seen: list[dict[str, list[int]]] = [{writer.name: [] for writer in writers} for _ in range(PARTITIONS)]

    def note(partition: int, _key: bytes, value: bytes) -> None:
        name, number = value.decode().split()
        seen[partition][name].append(int(number))

    reader = CommittedReader(bootstrap, TOPIC, PARTITIONS, note)
    try:
        reader.read(0, to_the_end=True)
    finally:
        reader.close()
    for writer in writers:
        found = seen[0][writer.name]
        assert found == sorted(set(found))
        assert all(partition[writer.name] == found for partition in seen), "transactions are visible as a whole"
        committed = {number for number, outcome in writer.outcomes.items() if outcome == "committed"}
        aborted = {number for number, outcome in writer.outcomes.items() if outcome == "aborted"}
        assert committed <= set(found)
        assert not aborted & set(found)
