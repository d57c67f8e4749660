"""The produce request that a broker gets most often, read in one go.

Nearly every one is for one topic, carries one whole batch of the present format for each partition, is part of no
transaction, and has no tagged fields. For those, four things are all that the handler wants to know, and the compiled
`_plain_produce` finds them without a message, a struct for each partition, or a second look at the head of each batch.
For all others, and where it is not built, the answer is None. That does not mean that there is anything wrong with the
request: it means that it has to be read as a message, by the codec, which also knows what to say if there is.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.broker.handlers._plain_produce import plain_produce
else:

    def plain_produce(payload, start, version):
        """Every request is read as a message."""

    if os.environ.get("BARNABAS_PURE") != "1":
        with suppress(ImportError):  # not built
            from barnabas.broker.handlers._plain_produce import plain_produce

__all__ = ["plain_produce"]
