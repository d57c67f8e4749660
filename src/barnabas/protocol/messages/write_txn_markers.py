"""WriteTxnMarkers (API 27): writes commit or abort markers to partitions.

Once EndTxn is decided, the transaction coordinator sends it to the leader of every partition in the transaction,
including those of ``__consumer_offsets``, for many transactions at once. A marker is a control record in the log;
read-committed consumers see the transaction's records only after it. The coordinator repeats the request until every
partition has the marker, and drops deleted partitions from the list.

``transaction_result`` is true for commit. ``coordinator_epoch`` is the leader epoch of the coordinator's own partition;
a partition that has seen a higher one refuses the marker (TRANSACTION_COORDINATOR_FENCED). There is no error for the
request as a whole, only one per partition. Administrators use it too, to abort a hanging transaction (KIP-664).

Versions: v1 flexible; v2 ``transaction_version``: from version 2 on, a marker must have a higher epoch than the
producer's last one, so that a late duplicate cannot end the next transaction (KIP-1228).
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, boolean, int8, int16, int32, int64, string
from barnabas.protocol.message import Request, Response, Struct


class WritableTxnMarkerTopic(Struct):
    name: str = string(default="")
    partition_indexes: list[int] = array("int32", default_factory=list)


class WritableTxnMarker(Struct):
    producer_id: int = int64(default=0)
    producer_epoch: int = int16(default=0)
    transaction_result: bool = boolean(default=False)
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic, default_factory=list)
    coordinator_epoch: int = int32(default=0)
    transaction_version: int = int8("2+", default=0, ignorable=True)


class WriteTxnMarkersRequest(Request, api_key=ApiKey.WRITE_TXN_MARKERS):
    markers: list[WritableTxnMarker] = array(WritableTxnMarker, default_factory=list)


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: int = int32(default=0)
    error_code: int = int16(default=0)


class WritableTxnMarkerTopicResult(Struct):
    name: str = string(default="")
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult, default_factory=list)


class WritableTxnMarkerResult(Struct):
    producer_id: int = int64(default=0)
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult, default_factory=list)


class WriteTxnMarkersResponse(Response, api_key=ApiKey.WRITE_TXN_MARKERS):
    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult, default_factory=list)
