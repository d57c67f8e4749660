"""Who writes to a log: decides how closely an append is looked at, by the records layer and by this one."""

from __future__ import annotations

from barnabas.records.validation import AppendOrigin

__all__ = ["AppendOrigin"]
