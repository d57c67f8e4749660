"""Commits or aborts, on the driver, all transactions of a batch."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Protocol

from barnabas.clients.common.blocking_client import ClientError
from barnabas.common.errors import BarnabasError
from barnabas.spark.sink_messages import Outcome, TaskTransaction, TaskWritten
from barnabas.spark.transaction_client import TransactionStatus
from barnabas.spark.transaction_decision import Decision, DecisionLog, Offsets
from barnabas.spark.transaction_names import NO_RUN, abort_mark, is_of_job, transactional_id

log = logging.getLogger(__name__)

_FOR_AN_EPOCH: Final = "its timeout expired, or another attempt at the same task has begun"


class TransactionLostError(BarnabasError):
    """A transaction of the batch was aborted before it could be committed."""


class Coordinators(Offsets, Protocol):
    """The part of `TransactionClient` that the driver uses."""

    def statuses(self, transactional_ids: Iterable[str]) -> Mapping[str, TransactionStatus]: ...

    def end_transactions(self, transactions: Mapping[str, TaskTransaction], *, commit: bool) -> frozenset[str]: ...

    def ongoing_transactions(self) -> list[str]: ...

    def take_over(self, transactional_ids: Iterable[str]) -> None: ...


class TransactionDriver:
    """Completes the transactions that the tasks of a micro-batch have left open.

    **Commit** has three steps, and can be interrupted and repeated at any point::

        look      are all transactions still open?      no: fail, and no row of the batch is visible
        decide    store their list (`DecisionLog`)      from here on the batch is committed
        end       EndTxn(commit) for each

    If the driver dies before the decision, the transactions stay open, and the next attempt at the batch aborts them
    when its tasks begin. If it dies after the decision, Spark repeats a decided batch. Its tasks read the decision
    first, find their transactions there, and write nothing (`TransactionalTask`), and the driver repeats the last step.

    **A decided transaction can be lost** if its timeout expires before it is ended, unless two-phase commit prevents
    that. Ending it fails then, and so does the query. When the batch is repeated, the task finds that it was not
    committed, and writes its rows again, in a new transaction with a new decision. That requires that a repeated batch
    has the same rows in the same task, which holds if the query before the sink is deterministic.

    **Abort** ends only undecided transactions, because Spark also calls it after a commit that failed half way, or that
    succeeded. Spark does not wait for the tasks that it kills, so some may still begin: see `abort_tasks`.
    """

    def __init__(self, job: str, coordinators: Coordinators, log_: DecisionLog | None = None) -> None:
        self._job = job
        self._coordinators = coordinators
        self._log = DecisionLog(job, coordinators) if log_ is None else log_

    def commit(self, messages: Sequence[TaskWritten], batch: int) -> None:
        written = [one for one in messages if one.outcome is Outcome.WRITTEN]
        if not written and not any(one.outcome is Outcome.DECIDED for one in messages):
            return  # there were no rows
        before = self._log.read()
        if before is not None and before.batch > batch:
            # The checkpoint was reset. Tasks have read the same decision, unless one began before it was stored.
            self._end({one.partition: _transaction(one) for one in written}, commit=False)
            return
        repeated = before if before is not None and before.batch == batch else None
        if repeated is not None:
            written = [one for one in written if not repeated.has(one.partition, _transaction(one))]
        else:
            self._check_proven([one for one in messages if one.outcome is Outcome.DECIDED], batch)
            if not written:
                return  # all rows are visible
        decision = repeated
        if decision is None or written:
            self._check_open(written)
            generation = 0 if before is None else before.generation + 1
            decision = _merge(messages, batch, repeated, generation)
            self.decide(decision, next(one.topic for one in written if one.topic is not None))
        self.complete(decision)
        if before is None or before.run != decision.run:
            self._abort_left_over(decision)

    def decide(self, decision: Decision, topic: str) -> None:
        """Stores the decision: the step that commits the batch."""
        self._log.write(decision, topic)

    def complete(self, decision: Decision) -> None:
        """Commits all transactions of the decision. Already committed ones are not an error."""
        decided = {number: one for number, one in enumerate(decision.transactions) if one is not None}
        lost = [number for number in self._end(decided, commit=True) if not self._is_proven(number, decision.batch)]
        if lost:
            raise TransactionLostError(
                f"Batch {decision.batch} is committed except for the rows of task(s) {', '.join(map(str, lost))}: "
                f"the transaction was aborted meanwhile: {_FOR_AN_EPOCH}. Start the query again to write them."
            )

    def _is_proven(self, partition: int, batch: int) -> bool:
        """Returns whether a task's group offset proves the commit, for a transaction that is no longer the last one."""
        return last_batch(self._coordinators, transactional_id(self._job, partition)) >= batch

    def abort(self, messages: Sequence[TaskWritten], batch: int, tasks: int) -> None:
        """Aborts a batch. `tasks` is the number of tasks; some may have sent no message."""
        try:
            decision = self._log.read()
            if decision is not None and decision.batch < batch:
                decision = None
            undecided = {
                one.partition: one.transaction
                for one in messages
                if one.transaction is not None
                and (decision is None or not decision.has(one.partition, one.transaction))
            }
            self._end(undecided, commit=False)
            # Killed tasks have not reported their transactions.
            run = messages[0].run if messages else NO_RUN
            if run == NO_RUN:
                self._abort_left_over(decision)
            else:
                abort_tasks(self._coordinators, self._job, run, tasks, self._kept(decision))
        except ClientError as error:
            log.warning("Transactions of batch %d stay open until they time out: %s", batch, error)

    def _check_open(self, written: Sequence[TaskWritten]) -> None:
        names = {transactional_id(self._job, one.partition): one for one in written}
        statuses = self._coordinators.statuses(names)
        gone = [
            one.partition
            for name, one in names.items()
            if name not in statuses or not statuses[name].is_open(_transaction(one))
        ]
        if gone:
            raise TransactionLostError(
                f"Nothing of the batch is committed, as the transaction of task(s) {', '.join(map(str, gone))} was "
                f"aborted: {_FOR_AN_EPOCH}."
            )

    def _check_proven(self, decided: Sequence[TaskWritten], batch: int) -> None:
        """Checks tasks that found their rows written, if the decision that says so is gone.

        It may have expired, or a driver that was cut off has replaced it by an earlier one. Proofs remain.
        """
        lost = [one.partition for one in decided if not self._is_proven(one.partition, batch)]
        if lost:
            raise TransactionLostError(
                f"The decision about batch {batch} is gone, and the rows of task(s) {', '.join(map(str, lost))} are "
                "not committed: another driver of this query may be running. Start the query again to write them."
            )

    def _end(self, transactions: Mapping[int, TaskTransaction], *, commit: bool) -> list[int]:
        if not transactions:
            return []
        by_name = {transactional_id(self._job, number): one for number, one in transactions.items()}
        lost = self._coordinators.end_transactions(by_name, commit=commit)
        return sorted(number for number in transactions if transactional_id(self._job, number) in lost)

    def _abort_left_over(self, decision: Decision | None) -> None:
        abort_left_over(self._coordinators, self._job, self._kept(decision))

    def _kept(self, decision: Decision | None) -> set[str]:
        decided = () if decision is None else decision.transactions
        return {transactional_id(self._job, number) for number, one in enumerate(decided) if one is not None}


def abort_tasks(coordinators: Coordinators, job: str, run: str, tasks: int, kept: Collection[str] = ()) -> None:
    """Aborts the open transactions of a job's tasks, and prevents new ones.

    A task may be about to begin while its job is aborted. So the driver sets a mark, and then takes over the
    transactional ids of all tasks that have initialized theirs. A task first initializes its id, and then checks the
    mark. In either order, no transaction stays open::

        task initializes its id   driver sets the mark, takes over   the task is fenced, its transaction aborted
        driver sets the mark, takes over   task initializes its id   the task finds the mark, and does not begin
    """
    coordinators.take_over([abort_mark(job, run)])
    names = [name for number in range(tasks) if (name := transactional_id(job, number)) not in kept]
    coordinators.take_over(coordinators.statuses(names))
    abort_left_over(coordinators, job, kept)


def is_aborted(coordinators: Coordinators, job: str, run: str) -> bool:
    """Returns whether the driver has aborted this run of the job."""
    return bool(coordinators.statuses([abort_mark(job, run)]))


def abort_left_over(coordinators: Coordinators, job: str, kept: Collection[str] = ()) -> None:
    """Aborts abandoned transactions, which block readers of committed data until they end.

    They belong to tasks that were killed before they could report to the driver, or that no longer exist, because the
    driver died and a batch has fewer tasks now.
    """
    names = [one for one in coordinators.ongoing_transactions() if is_of_job(job, one) and one not in kept]
    found = coordinators.statuses(names) if names else {}
    if found:
        log.info("Aborting the transactions of tasks that are gone: %s", ", ".join(sorted(found)))
        ended = {name: TaskTransaction(one.producer_id, one.epoch, False) for name, one in found.items()}
        coordinators.end_transactions(ended, commit=False)


def last_batch(offsets: Offsets, group: str) -> int:
    """Returns the last batch that a task has completed: the group offset that its transactions commit."""
    return max((one.offset for one in offsets.committed(group).values()), default=-1)


def _transaction(message: TaskWritten) -> TaskTransaction:
    assert message.transaction is not None
    return message.transaction


def _merge(messages: Sequence[TaskWritten], batch: int, before: Decision | None, generation: int) -> Decision:
    """Merges the previous decision with the transactions that were written again."""
    count = len(messages)
    if before is not None and len(before.transactions) != count:
        raise TransactionLostError(
            f"Some rows of batch {batch} have to be written again, but it has {count} tasks now and had "
            f"{len(before.transactions)}, so it is not known which. Run it with as many tasks as before."
        )
    transactions: list[TaskTransaction | None] = [None] * count if before is None else list(before.transactions)
    for one in messages:
        if one.transaction is not None:
            transactions[one.partition] = one.transaction
    return Decision(batch, tuple(transactions), messages[0].run, generation)
