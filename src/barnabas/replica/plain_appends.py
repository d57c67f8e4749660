"""What a produce request does for most of its partitions, done in one go.

The partition is led here and has no other replicas; its batch is in order, not compressed, outside of transactions, and
the next one of its producer. Then nothing can be said about it but where it went. The compiled `_plain_appends` takes
the steps of `Partition.append_records_to_leader` and `UnifiedLog.append_as_leader`, with the same locks in the same
order, but makes no object for what came of each.

For all others, and where it is not built, the answer is None, and nothing has been done.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.replica._plain_appends import append_next
else:

    def append_next(partition, records):
        """Every append takes the other way."""

    if os.environ.get("BARNABAS_PURE") != "1":
        with suppress(ImportError):  # not built
            from barnabas.replica._plain_appends import append_next

__all__ = ["append_next"]
