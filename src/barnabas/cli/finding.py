"""The result of a step of ``barnabas doctor``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

Status = Literal["ok", "warning", "error", "skipped"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a step."""

    step: str
    status: Status
    what: str
    remedy: str = ""

    def as_dict(self) -> dict[str, str]:
        return asdict(self)
