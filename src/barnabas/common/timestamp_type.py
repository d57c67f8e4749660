"""Whether the producer or the broker sets the timestamps of a batch."""

from __future__ import annotations

from enum import IntEnum


class TimestampType(IntEnum):
    """The clock of a batch's timestamps: the producer's, or the broker's at the time of the append."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1

    @property
    def kafka_name(self) -> str:
        return "CreateTime" if self is TimestampType.CREATE_TIME else "LogAppendTime"

    @classmethod
    def for_name(cls, name: str) -> TimestampType:
        for member in cls:
            if member.kafka_name == name:
                return member
        raise ValueError(f"unknown timestamp type {name!r}: expected CreateTime or LogAppendTime")
