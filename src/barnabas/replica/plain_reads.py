"""The reads that a consumer who catches up is made of, done in one go.

Such a consumer is somewhere in the middle of a log. What there is for it is found by five objects, each of which asks
the next one: the partition, its log, the part of that on this disk, a segment, and the segment's file with its index.
Nearly always all of them have nothing to say but yes: the broker leads the partition, no transaction is open, the place
of the high watermark is known, and the entries of the index are in memory. For those, the compiled `_plain_reads` goes
straight to the file, reads the header of a batch or two, and has the region to be sent.

Whatever is not that plain, an error above all, is left to `Partition.fetch_records`; where the compiled one is not
built, all is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any


def skip_known(
    _fetch_infos: Sequence[tuple[Any, Any]],
    results: list[Any],
    index: int,
    _online: Mapping[Any, Any],
    limit_bytes: int,
    min_one_message: bool,
    _fetch_only_leader: bool,
) -> tuple[int, int, bool]:
    """As `read_plain` where nothing is plain: the number of the first partition that nothing is known of."""
    while index < len(results) and results[index] is not None:
        index += 1
    return index, limit_bytes, min_one_message


if TYPE_CHECKING:
    from barnabas.replica._plain_reads import read_plain
else:
    read_plain = skip_known
    if os.environ.get("BARNABAS_PURE") != "1":
        with suppress(ImportError):  # not built
            from barnabas.replica._plain_reads import read_plain

__all__ = ["read_plain", "skip_known"]
