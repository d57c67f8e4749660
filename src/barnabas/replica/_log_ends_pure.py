"""Which partitions of a fetch have nothing new, found out in a few steps: the twin of the compiled `_log_ends`.

A consumer of many partitions has read all there is of most of them, and asks for those with every fetch. When it has to
wait they are looked at again: when it is put on the list of those who wait, when something happens to one of them, and
when it is answered. So nearly all reads of nearly all fetches are of partitions where the reader is at the end and
nothing has happened. For those, what there is to be told is made once and kept with the partition: see
`Partition.end_seen`. As long as nothing changes it is the same object, by which those who wait see that nothing has.

Whatever is not that plain, an error above all, is left to `Partition.fetch_records`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from barnabas.common.errors import Errors
from barnabas.common.identifiers import ZERO_UUID
from barnabas.log.fetch_data_info import FetchDataInfo
from barnabas.replica.results import LogReadResult


def at_end(partition: Any, request: Any, committed: bool, fetch_only_leader: bool) -> LogReadResult | None:
    """What `Partition.fetch_records` gives a consumer that has read everything; None if it has to be asked."""
    role = partition.role
    log, is_leader, _, leader_epoch, _ = role
    if (
        log is None
        or (fetch_only_leader and not is_leader)
        or (request.current_leader_epoch != leader_epoch and request.current_leader_epoch >= 0)
        or request.last_fetched_epoch >= 0
    ):
        return None
    marks = log.watermarks
    offset = request.fetch_offset
    end = marks.plain_end(offset)
    if end is None or partition.role is not role:
        return None
    start = marks.log_start_offset
    known: LogReadResult | None = partition.committed_end_seen if committed else partition.end_seen
    if known is None or known[1][0] is not end or known[3] != start:
        info = FetchDataInfo(end, b"", False, [] if committed else None)
        known = LogReadResult(Errors.NONE, info, offset, start, offset, offset)
        if committed:
            partition.committed_end_seen = known
        else:
            partition.end_seen = known
    return known


def ends_of(
    fetch_infos: Sequence[tuple[Any, Any]], online: Mapping[Any, Any], committed: bool, fetch_only_leader: bool
) -> list[Any]:
    """For each partition of a consumer's fetch, itself and what `at_end` says of it; None for those to be read."""
    ends: list[Any] = []
    for topic_id_partition, request in fetch_infos:
        topic_id, topic, number = topic_id_partition
        partition = online.get((topic or "", number))
        result = None
        if partition is not None and topic_id in (partition.topic_id, ZERO_UUID):
            result = at_end(partition, request, committed, fetch_only_leader)
        ends.append(None if result is None else (topic_id_partition, result))
    return ends


def changed(
    statuses: Sequence[tuple[Any, Any, Any, Any]], online: Mapping[Any, Any], committed: bool, fetch_only_leader: bool
) -> list[Any]:
    """Those partitions of a consumer's fetch that waits for which `at_end` does not say the same as before."""
    found: list[Any] = []
    for status in statuses:
        _, request, key, result = status
        partition = online.get(key)
        if partition is None or at_end(partition, request, committed, fetch_only_leader) is not result:
            found.append(status)
    return found
