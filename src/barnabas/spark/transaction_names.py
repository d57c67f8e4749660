"""Names of the transactional ids and groups of a sink."""

from __future__ import annotations

from typing import Final

NO_RUN: Final = "-"
"""Stands for an unknown run, and for the only run of a batch query."""


def job_name(prefix: str, query: str) -> str:
    return f"{prefix}-{query}"


def transactional_id(job: str, partition: int) -> str:
    """Returns the transactional id of the task for a partition of the rows.

    Its group has the same name: there, the transactions commit the last batch that the task has completed.
    """
    return f"{job}-{partition}"


def decision_group(job: str) -> str:
    """Returns the group in which the driver stores the transactions to commit."""
    return f"{job}-decision"


def abort_mark(job: str, run: str) -> str:
    """Returns the transactional id that exists if the driver has aborted the job. It is never used to write."""
    return f"{job}-{run}-aborted"


def is_of_job(job: str, given: str) -> bool:
    """Returns whether a transactional id belongs to this job."""
    return given.startswith(f"{job}-") and given[len(job) + 1 :].isdecimal()
