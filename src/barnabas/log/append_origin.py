"""The origin of an append, which determines how strictly the records layer and the log validate it."""

from __future__ import annotations

from barnabas.records.validation import AppendOrigin

__all__ = ["AppendOrigin"]
