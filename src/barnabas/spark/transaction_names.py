"""How transactional ids and groups of a sink are called."""

from __future__ import annotations

from typing import Final

NO_RUN: Final = "-"
"""In place of a run that is not known, or of that of a batch query, which has only one."""


def job_name(prefix: str, query: str) -> str:
    return f"{prefix}-{query}"


def transactional_id(job: str, partition: int) -> str:
    """Of the task for a partition of the rows. Its group has the same name: what is committed there as part of the
    transactions is the last batch that the task has completed."""
    return f"{job}-{partition}"


def decision_group(job: str) -> str:
    """Where the driver notes which transactions are to be committed."""
    return f"{job}-decision"


def abort_mark(job: str, run: str) -> str:
    """The transactional id that is there if the driver has aborted the job. Nobody ever writes with it."""
    return f"{job}-{run}-aborted"


def is_of_job(job: str, given: str) -> bool:
    """Whether a transactional id is one of this job's."""
    return given.startswith(f"{job}-") and given[len(job) + 1 :].isdecimal()
