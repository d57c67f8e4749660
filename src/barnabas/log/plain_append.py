"""The append that nearly all appends are, done in one go.

A batch that is in order goes through the log, its part on this disk, the active segment, the segment's file, and its
two indexes; and the producer that it is from is looked up. Nearly always none of them has anything to do but to take
note: the segment has room, the indexes are open and have room, the leader epoch is the last one, and the batch is the
next one of its producer, if it has one. For that the compiled `_plain_append` does all the steps of
`LogWriter._append_plain`, `LocalLog.append_if_room` and what is below them, as they are told there.

For all others, and where it is not built, the answer is None, and nothing has been done.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.log._plain_append import append_plain
else:

    def append_plain(local_log, state, leader_epochs, batch, leader_epoch):
        """Every append takes the other way."""

    if os.environ.get("BARNABAS_PURE") != "1":
        with suppress(ImportError):  # not built
            from barnabas.log._plain_append import append_plain

__all__ = ["append_plain"]
