"""Whoever dies, and whenever: when a query has been started again, each row is visible once (S04).

A model of Spark runs the sink's own tasks and driver against a cluster in memory, and cuts them off at every point at
which they ask the cluster something, before and after it has done it. There is no Spark and no socket here: those are
in tests/spark.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from barnabas.common.errors import BarnabasError
from barnabas.spark.sink_columns import SinkColumns
from barnabas.spark.sink_messages import TaskWritten
from barnabas.spark.sink_options import SinkOptions
from barnabas.spark.transaction_client import TransactionClient
from barnabas.spark.transaction_decision import CommittedOffset, DecisionLog
from barnabas.spark.transaction_driver import TransactionDriver, abort_tasks
from barnabas.spark.transaction_names import NO_RUN, decision_group
from barnabas.spark.transaction_task import TaskIdentity, TransactionalTask
from unit.spark.scripted_coordinators import CrashError, ScriptedClient, ScriptedCluster, ScriptedProducer

pytestmark = pytest.mark.mechanism("S04")

JOB = "barnabas-spark-query"
TASKS = 3
BATCHES = 3
ROWS = {batch: [[f"{batch}/{task}/{row}" for row in range(2)] for task in range(TASKS)] for batch in range(BATCHES)}
EXPECTED = sorted(row for batch in ROWS.values() for task in batch for row in task)
OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:9", "topic": "out"}


class Query:
    """Spark, as far as a sink can tell: it repeats a batch until a commit of it has returned."""

    def __init__(self, cluster: ScriptedCluster, *, limit: int = 4096, **options: str) -> None:
        self._cluster = cluster
        self._options = SinkOptions.of({**OPTIONS, **options}, is_stream=True)
        self._columns = SinkColumns("out", ("value",))
        self._limit = limit
        self.shuffled = False
        """Whether each run deals the rows of a batch to other tasks."""
        self.runs = 0
        self.committed = 0
        """The number of the first batch that Spark has not noted as done."""
        self.failures: list[str] = []

    def task(
        self,
        batch: int | None,
        partition: int,
        kind: type[TransactionalTask] = TransactionalTask,
        *,
        run: str | None = None,
    ) -> TransactionalTask:
        client: Any = lambda _settings: ScriptedClient(self._cluster)  # noqa: E731
        producer: Any = lambda properties: ScriptedProducer(self._cluster, properties)  # noqa: E731
        identity = TaskIdentity(JOB, str(self.runs) if run is None else run, partition, batch)
        return kind(self._options, self._columns, identity, new_client=client, new_producer=producer)

    def run(self) -> None:
        """To the end, or until something fails."""
        self.runs += 1
        while self.committed < BATCHES:
            self._run_batch(self.committed)
            self.committed += 1

    def _run_batch(self, batch: int) -> None:
        messages: list[TaskWritten] = []
        client: Any = ScriptedClient(self._cluster)
        driver = TransactionDriver(JOB, client, DecisionLog(JOB, client, limit=self._limit))
        try:
            messages += [self.task(batch, task).write(_batches(self._rows(batch, task))) for task in range(TASKS)]
            driver.commit(messages, batch)
        except BarnabasError:
            driver.abort(messages, batch, TASKS)
            raise

    def _rows(self, batch: int, task: int) -> list[str]:
        return ROWS[batch][(task + self.runs) % TASKS if self.shuffled else task]

    def run_to_the_end(self, between: Callable[[], None] = lambda: None) -> None:
        for _ in range(10):
            try:
                self.run()
            except (CrashError, BarnabasError) as failure:
                self.failures.append(repr(failure))
                between()
            else:
                return
        raise AssertionError(f"the query does not come to an end: {self.failures}")


def _batches(rows: list[str]) -> Iterator[pa.RecordBatch]:
    for row in rows:
        yield pa.record_batch({"value": [row]})


def _crash_at(*points: int, error: type[BaseException] = CrashError) -> Callable[[int], None]:
    def at_call(point: int) -> None:
        if point in points:
            raise error(f"at point {point}")

    return at_call


def _points(**options: Any) -> int:
    cluster = ScriptedCluster()
    Query(cluster, **options).run()
    assert sorted(cluster.visible) == EXPECTED
    return cluster.points


def test_without_a_crash_each_batch_is_visible_when_it_is_committed() -> None:
    cluster = ScriptedCluster()
    query = Query(cluster)
    seen: list[list[str]] = []
    cluster.at_call = lambda _point: seen.append(list(cluster.visible))
    query.run()
    assert sorted(cluster.visible) == EXPECTED
    assert cluster.open_transactions() == []
    # And not before the decision.
    decided = [len(one) for one in seen].index(2)
    assert decided > seen.index([]) + 6 * TASKS


@pytest.mark.parametrize("limit", [4096, 22], ids=["one piece", "pieces"])
@pytest.mark.parametrize("time_runs_out", [False, True])
@pytest.mark.parametrize("error", [CrashError, BarnabasError])
def test_a_crash_anywhere(error: type[BaseException], time_runs_out: bool, limit: int) -> None:
    """An error that is raised, which Spark answers with abort(); or a death, which nobody answers."""
    for point in range(1, _points(limit=limit) + 1):
        cluster = ScriptedCluster()
        cluster.at_call = _crash_at(point, error=error)
        query = Query(cluster, limit=limit)
        query.run_to_the_end(cluster.let_time_run_out if time_runs_out else lambda: None)
        assert sorted(cluster.visible) == EXPECTED, f"after a crash at point {point}: {query.failures}"
        assert cluster.open_transactions() == [], f"after a crash at point {point}"


@pytest.mark.parametrize("error", [CrashError, BarnabasError])
def test_a_batch_that_was_decided_need_not_be_the_same_again(error: type[BaseException]) -> None:
    """The decision is about all rows, so it does not matter who has them when the batch is repeated."""
    for point in range(1, _points() + 1):
        cluster = ScriptedCluster()
        cluster.at_call = _crash_at(point, error=error)
        query = Query(cluster)
        query.shuffled = True
        query.run_to_the_end()
        assert sorted(cluster.visible) == EXPECTED, f"after a crash at point {point}: {query.failures}"


@pytest.mark.parametrize("time_runs_out", [False, True])
@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.nightly)])
def test_two_crashes_anywhere(step: int, time_runs_out: bool) -> None:
    for first, second in itertools.combinations(range(1, _points() + 40, step), 2):
        cluster = ScriptedCluster()
        cluster.at_call = _crash_at(first, second)
        query = Query(cluster)
        query.run_to_the_end(cluster.let_time_run_out if time_runs_out else lambda: None)
        assert sorted(cluster.visible) == EXPECTED, f"after crashes at {first} and {second}: {query.failures}"


class _Zombie(TransactionalTask):
    """A task that has looked for the decision long ago, and wakes up now."""

    def _is_decided(self, client: TransactionClient) -> bool:
        return False


@pytest.mark.parametrize("crash_follows", [False, True])
@pytest.mark.parametrize("kind", [TransactionalTask, _Zombie])
def test_a_zombie_anywhere(kind: type[TransactionalTask], crash_follows: bool) -> None:
    """Another attempt at a task of the first batch comes in between, at each point of the first two batches."""
    for point in range(1, _points() - 2):
        cluster = ScriptedCluster()
        query = Query(cluster)

        def zombie(now: int, point: int = point, cluster: ScriptedCluster = cluster, query: Query = query) -> None:
            if now == point:
                cluster.at_call = lambda _point: None
                query.task(0, 1, kind).write(_batches(ROWS[0][1]))
                cluster.at_call = _crash_at(cluster.points + 2) if crash_follows else lambda _point: None

        cluster.at_call = zombie
        query.run_to_the_end()
        assert sorted(cluster.visible) == EXPECTED, f"after a zombie at point {point}: {query.failures}"


def test_a_second_driver_that_was_late() -> None:
    """Two drivers work on the same batch. Tasks of the second have looked for a decision before the first made it."""
    cluster = ScriptedCluster()
    query = Query(cluster)
    client: Any = ScriptedClient(cluster)
    for kind in (TransactionalTask, _Zombie):
        messages = [query.task(0, task, kind).write(_batches(ROWS[0][task])) for task in range(TASKS)]
        TransactionDriver(JOB, client).commit(messages, 0)
    assert sorted(cluster.visible) == sorted(row for task in ROWS[0] for row in task)
    assert cluster.open_transactions() == []


def test_a_transaction_that_was_decided_and_timed_out_is_written_again() -> None:
    cluster = ScriptedCluster()
    query = Query(cluster)

    def at_call(_point: int) -> None:
        # The driver dies when the first of three transactions is committed, and is away for long.
        if len(cluster.visible) == 2:
            cluster.at_call = lambda _point: None
            raise CrashError("after the first EndTxn")

    cluster.at_call = at_call
    query.run_to_the_end(cluster.let_time_run_out)
    assert sorted(cluster.visible) == EXPECTED
    assert query.runs == 2
    decision = DecisionLog(JOB, ScriptedClient(cluster)).read()
    assert decision is not None
    assert (decision.batch, decision.run, decision.generation) == (2, "2", 3)


@pytest.mark.parametrize("earlier", [True, False], ids=["an earlier one", "none"])
def test_a_decision_that_is_gone_after_its_batch_was_committed(earlier: bool) -> None:
    """A driver that was cut off has stored the decision about an earlier batch at last; or the decision has expired.

    The driver in between dies before Spark has noted its batch.
    """
    cluster = ScriptedCluster()
    query = Query(cluster)
    decisions = cluster.groups.setdefault(decision_group(JOB), {})
    before: dict[str, CommittedOffset] = {}

    def at_call(_point: int) -> None:
        if len(cluster.visible) == 2 * TASKS and not before:
            before.update(decisions)
        if len(cluster.visible) == 4 * TASKS:
            cluster.at_call = lambda _point: None
            raise CrashError("after the last EndTxn of batch 1")

    cluster.at_call = at_call
    with pytest.raises(CrashError):
        query.run()
    decisions.clear()
    decisions.update(before if earlier else {})
    query.run()
    assert sorted(cluster.visible) == EXPECTED
    assert cluster.open_transactions() == []


def test_a_decision_that_is_gone_before_its_batch_was_committed() -> None:
    """The tasks of the repeated batch have read the decision; the driver does not find it any more."""
    cluster = ScriptedCluster()
    query = Query(cluster)
    cluster.at_call = lambda _point: (_ for _ in ()).throw(CrashError()) if len(cluster.visible) == 2 else None
    with pytest.raises(CrashError):
        query.run()
    cluster.at_call = lambda _point: None
    messages = [query.task(0, task).write(_batches(ROWS[0][task])) for task in range(TASKS)]
    cluster.groups[decision_group(JOB)].clear()
    client: Any = ScriptedClient(cluster)
    driver = TransactionDriver(JOB, client)
    with pytest.raises(BarnabasError, match=r"the rows of task\(s\) 1, 2 are not committed"):
        driver.commit(messages, 0)
    driver.abort(messages, 0, TASKS)
    query.run()
    assert sorted(cluster.visible) == EXPECTED


def test_rows_that_must_be_written_again_by_another_number_of_tasks_are_refused() -> None:
    """It is not known which rows those are."""
    cluster = ScriptedCluster()
    query = Query(cluster)
    cluster.at_call = lambda _point: (_ for _ in ()).throw(CrashError()) if len(cluster.visible) == 2 else None
    with pytest.raises(CrashError):
        query.run()
    cluster.at_call = lambda _point: None
    cluster.let_time_run_out()
    messages = [query.task(0, task).write(_batches(["a"])) for task in range(TASKS + 1)]
    client: Any = ScriptedClient(cluster)
    driver = TransactionDriver(JOB, client)
    with pytest.raises(BarnabasError, match="it has 4 tasks now and had 3"):
        driver.commit(messages, 0)
    driver.abort(messages, 0, len(messages))
    assert cluster.visible == ["0/0/0", "0/0/1"]
    assert cluster.open_transactions() == []


def test_an_abort_after_a_commit_does_nothing() -> None:
    cluster = ScriptedCluster()
    query = Query(cluster)
    messages = [query.task(0, task).write(_batches(ROWS[0][task])) for task in range(TASKS)]
    client: Any = ScriptedClient(cluster)
    driver = TransactionDriver(JOB, client)
    cluster.at_call = lambda _point: (_ for _ in ()).throw(BarnabasError()) if cluster.visible else None
    with pytest.raises(BarnabasError):
        driver.commit(messages, 0)
    cluster.at_call = lambda _point: None
    driver.abort(messages, 0, len(messages))
    assert len(cluster.open_transactions()) == 2  # they are decided, and wait for whoever comes next
    driver.commit(messages, 0)
    driver.abort(messages, 0, len(messages))
    assert sorted(cluster.visible) == sorted(row for task in ROWS[0] for row in task)


def test_time_that_ran_out_before_the_decision_fails_the_whole_batch() -> None:
    cluster = ScriptedCluster()
    query = Query(cluster)
    client: Any = ScriptedClient(cluster)
    messages = [query.task(0, 0).write(_batches(ROWS[0][0]))]
    cluster.let_time_run_out()
    messages += [query.task(0, task).write(_batches(ROWS[0][task])) for task in (1, 2)]
    with pytest.raises(
        BarnabasError, match=r"Nothing of the batch is committed, as the transaction of task\(s\) 0 was"
    ):
        TransactionDriver(JOB, client).commit(messages, 0)
    assert DecisionLog(JOB, client).read() is None
    assert cluster.visible == []


def test_transactions_of_tasks_that_were_killed_are_aborted() -> None:
    """They have told nobody what they left."""
    cluster = ScriptedCluster()
    query = Query(cluster)
    client: Any = ScriptedClient(cluster)
    messages = [query.task(0, task).write(_batches(ROWS[0][task])) for task in range(TASKS)]
    other = ScriptedProducer(cluster, {"transactional.id": f"{JOB}-of-somebody-else"})
    other.init_transactions()
    other.send_table("out", pa.record_batch({"value": ["a"]}))
    TransactionDriver(JOB, client).abort(messages[:1], 0, TASKS)
    assert cluster.open_transactions() == [f"{JOB}-of-somebody-else"]


@pytest.mark.parametrize("batch", [None, 0], ids=["batch query", "stream"])
@pytest.mark.parametrize("first", ["task", "driver"])
def test_a_task_that_begins_while_its_job_is_aborted_leaves_nothing_open(first: str, batch: int | None) -> None:
    """The driver aborts between any two steps of a task, or a task begins between any two of the driver's steps."""
    for point in itertools.count(1):
        cluster = ScriptedCluster()
        query = Query(cluster)
        client: Any = ScriptedClient(cluster)
        run = NO_RUN if batch is None else "run"
        written = query.task(batch, 0, run=run).write(_batches(ROWS[0][0]))

        def begin(query: Query = query, run: str = run) -> None:
            with contextlib.suppress(BarnabasError):
                query.task(batch, 1, run=run).write(_batches(ROWS[0][1]))

        def abort(client: Any = client, run: str = run, written: TaskWritten = written) -> None:
            if batch is None:
                abort_tasks(client, JOB, run, TASKS)
            else:
                TransactionDriver(JOB, client).abort([written], batch, TASKS)

        steps, between = (begin, abort) if first == "task" else (abort, begin)
        cut_in = _Once(cluster, cluster.points + point, between)
        cluster.at_call = cut_in
        steps()
        if not cut_in.done:
            break
        assert cluster.open_transactions() == [], f"at point {point}"
        assert cluster.visible == []
    assert point > 4


class _Once:
    """Lets something happen at a point."""

    def __init__(self, cluster: ScriptedCluster, point: int, what: Callable[[], None]) -> None:
        self._cluster = cluster
        self._at = point
        self._what = what
        self.done = False

    def __call__(self, point: int) -> None:
        if point == self._at:
            self.done = True
            self._cluster.at_call = lambda _point: None
            self._what()


def test_transactions_of_tasks_that_there_are_no_more_are_aborted() -> None:
    """A driver dies before the decision, and the batch has fewer tasks when it is repeated."""
    cluster = ScriptedCluster()
    query = Query(cluster)
    client: Any = ScriptedClient(cluster)
    for task in range(TASKS):
        query.task(0, task).write(_batches(ROWS[0][task]))
    messages = [query.task(0, 0).write(_batches([row for rows in ROWS[0] for row in rows]))]
    TransactionDriver(JOB, client).commit(messages, 0)
    assert cluster.open_transactions() == []
    assert sorted(cluster.visible) == sorted(row for rows in ROWS[0] for row in rows)


def test_a_checkpoint_that_was_set_back_writes_nothing_again() -> None:
    cluster = ScriptedCluster()
    query = Query(cluster)
    query.run()
    query.committed = 0
    query.run()
    assert sorted(cluster.visible) == EXPECTED


def test_rows_that_are_not_written_are_read() -> None:
    """Stateful operators before the sink note their state when their last row was asked for."""
    cluster = ScriptedCluster()
    query = Query(cluster)
    query.run()
    rows = _batches(ROWS[0][0])
    query.task(0, 0).write(rows)
    assert next(rows, None) is None


def test_an_empty_batch_asks_for_nothing_but_the_decision() -> None:
    cluster = ScriptedCluster()
    query = Query(cluster)
    messages = [query.task(0, task).write(iter(())) for task in range(TASKS)]
    client: Any = ScriptedClient(cluster)
    TransactionDriver(JOB, client).commit(messages, 0)
    assert cluster.points == 2 * TASKS
    assert cluster.groups.get(decision_group(JOB)) is None
