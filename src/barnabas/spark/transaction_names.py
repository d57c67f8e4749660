"""How transactional ids and groups of a sink are called."""

from __future__ import annotations


def job_name(prefix: str, query: str) -> str:
    return f"{prefix}-{query}"


def transactional_id(job: str, partition: int) -> str:
    """Of the task for a partition of the rows. Its group has the same name: what is committed there as part of the
    transactions is the last batch that the task has completed."""
    return f"{job}-{partition}"


def decision_group(job: str) -> str:
    """Where the driver notes which transactions are to be committed."""
    return f"{job}-decision"


def is_of_job(job: str, given: str) -> bool:
    """Whether a transactional id is one of this job's."""
    return given.startswith(f"{job}-") and given[len(job) + 1 :].isdecimal()
