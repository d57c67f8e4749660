"""Judges failed requests: which are a reason for alarm, and which are part of the protocol.

A response with an error is often no fault. A consumer's first JoinGroup fails with MEMBER_ID_REQUIRED, FindCoordinator
fails with COORDINATOR_NOT_AVAILABLE until the offsets topic exists, and clients retry. "33 % failed" for one of three
requests is noise.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

FEW_FAILURES: Final = 5
"""Fewer recorded failures than this are not an alarm, even with a high share."""
LEAST_SHARE: Final = 0.001
"""A smaller share of failed requests is not an alarm."""
START_UP_MINUTES: Final = 2
"""Clients start within this many minutes; failures in more different minutes count as persistent."""
START_UP_APIS: Final = frozenset(
    {"FindCoordinator", "Heartbeat", "InitProducerId", "JoinGroup", "Metadata", "OffsetFetch", "SyncGroup"}
)
"""The requests whose retriable errors belong to the start of a client, of a group, or of a topic."""


class Failures(Enum):
    """The verdict about the failed requests of one API."""

    NONE = "none"
    FEW = "few"
    START_UP = "start-up"
    ALARM = "alarm"


def judge_failures(api: str, requests: float, failed: float, recorded: float, minutes: int) -> Failures:
    """Judges failed requests by their number, their share, and how long they went on.

    ``requests`` and ``failed`` are estimates if the log is sampled; ``recorded`` counts the failures in the log itself.

    >>> judge_failures("FindCoordinator", 3, 1, 1, 1)
    <Failures.FEW: 'few'>
    >>> judge_failures("JoinGroup", 40, 20, 20, 1), judge_failures("JoinGroup", 40, 20, 20, 9)
    (<Failures.START_UP: 'start-up'>, <Failures.ALARM: 'alarm'>)
    >>> judge_failures("Produce", 400, 20, 20, 1), judge_failures("Produce", 400_000, 20, 20, 1)
    (<Failures.ALARM: 'alarm'>, <Failures.FEW: 'few'>)
    """
    if failed <= 0:
        return Failures.NONE
    if recorded < FEW_FAILURES or failed < LEAST_SHARE * requests:
        return Failures.FEW
    if api in START_UP_APIS and minutes <= START_UP_MINUTES:
        return Failures.START_UP
    return Failures.ALARM
