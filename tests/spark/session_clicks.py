"""Clicks of some users in parts, and the sessions that a pipeline has to make of them, computed without Spark."""

from __future__ import annotations

import json
import random
from typing import Any, Final

from spark.pipeline_records import SECOND, moment
from spark.table_crash_program import GAP_MS, LATENESS_MS

START_US: Final = 1_600_000_000 * SECOND
MINUTE: Final = 60 * SECOND
USERS: Final = tuple(f"user-{number}" for number in range(20))
Click = tuple[int, str | None, int | None, str]
"""Time, user, milliseconds and page."""


def clicks(part: int) -> list[Click]:
    """About twenty minutes of each part: users come and go, so that sessions end within parts and go on across them.

    One click of each part has no user, and from the second part on one is far behind the others.
    """
    choose = random.Random(part)
    start_us = START_US + part * 25 * MINUTE
    made: list[Click] = [
        (start_us + choose.randrange(20 * 60) * SECOND, user, choose.choice((None, 5, 7)), f"p{choose.randrange(9)}")
        for user in USERS
        for _ in range(choose.choice((0, 0, 0, 1, 4)))
    ]
    made.append((start_us + 20 * MINUTE, "clock", 1, "p"))
    made.append((start_us, None, 1, "nobody"))
    if part:
        made.append((start_us - 60 * MINUTE, USERS[0], 1, "late"))
    choose.shuffle(made)
    return made


def rows(part: int) -> list[tuple[Any, ...]]:
    """The clicks as rows of the source."""
    return [
        (None, value_of(click), "clicks", 0, part * 1_000 + place, moment(click[0]), 0, [])
        for place, click in enumerate(clicks(part))
    ]


def value_of(click: Click) -> bytes:
    return json.dumps({"user": click[1], "ms": click[2], "page": click[3]}).encode()


def expected(parts: int, per_part: int | None = 1_000) -> tuple[list[tuple[Any, ...]], list[tuple[int, str]]]:
    """Sessions (user, start, end, records, first and last offset, sum, last page), and offset and reason of the rest.

    ``per_part`` is how many offsets lie between the first clicks of two parts; None: no offset is left out.
    """
    accepted: dict[str, list[tuple[int, int, Click]]] = {}
    rejected: list[tuple[int, str]] = []
    newest_us = watermark_us = first_offset = 0
    for part in range(parts):
        for place, click in enumerate(clicks(part)):
            time_us, user = click[:2]
            offset = first_offset + place
            if user is None:
                rejected.append((offset, "user is missing"))
            elif time_us < watermark_us:
                rejected.append((offset, f"late: {(watermark_us - time_us) // 1_000} ms behind the watermark"))
            else:
                accepted.setdefault(user, []).append((time_us, offset, click))
            newest_us = max(newest_us, time_us)
        watermark_us = newest_us - LATENESS_MS * 1_000
        first_offset += per_part or len(clicks(part))
    sessions: list[tuple[Any, ...]] = []
    for user, found in accepted.items():
        group: list[tuple[int, int, Click]] = []
        for one in sorted(found):
            if group and one[0] - group[-1][0] >= GAP_MS * 1_000:
                sessions.append(_session(user, group))
                group = []
            group.append(one)
        sessions.append(_session(user, group))
    closed = [one for one in sessions if one[2] + GAP_MS * 1_000 <= watermark_us]
    return sorted(closed), sorted(rejected)


def _session(user: str, group: list[tuple[int, int, Click]]) -> tuple[Any, ...]:
    times = [click[2] for _, _, click in group if click[2] is not None]
    total = sum(times) if times else None
    return user, group[0][0], group[-1][0], len(group), group[0][1], group[-1][1], total, group[-1][2][3]
