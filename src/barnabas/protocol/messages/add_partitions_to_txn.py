"""AddPartitionsToTxn (API 24): tells the transaction coordinator which partitions a transaction writes to.

EndTxn has to write a marker to every partition of a transaction, so the coordinator must know a partition before data
is appended to it. The request has two uses:

- **v0 to v3, from producers.** One transaction per request, in the ``v3_and_below_*`` fields, sent before the first
  Produce to a partition. It is all or nothing: when one partition is refused (unauthorized, unknown), the others get
  OPERATION_NOT_ATTEMPTED.
- **v4 and later, from brokers** (needs ClusterAction). A partition leader that receives transactional data asks the
  coordinator itself, for several transactions at once. With ``verify_only`` it asks whether the partition already
  belongs to the ongoing transaction, which prevents a late Produce from leaving a hanging transaction. Without it,
  under transaction version 2, the partition is added; producers then do not send the request.

CONCURRENT_TRANSACTIONS means that the markers of the previous transaction are still being written: retry after a pause.
A failed verification is TRANSACTION_ABORTABLE: the producer can abort and continue.

Versions: v1 client-side throttling (KIP-219); v2 PRODUCER_FENCED (KIP-588); v3 flexible; v4 batches, ``verify_only``,
top-level error (KIP-890); v5 TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, boolean, int16, int32, int64, string
from barnabas.protocol.message import Request, Response, Struct


class AddPartitionsToTxnTopic(Struct):
    name: str = string(default="")
    partitions: list[int] = array("int32", default_factory=list)


class AddPartitionsToTxnTransaction(Struct):
    """One transaction of a batched request (v4 and later)."""

    transactional_id: str = string("4+", default="")
    producer_id: int = int64("4+", default=0)
    producer_epoch: int = int16("4+", default=0)
    verify_only: bool = boolean("4+", default=False)
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "4+", default_factory=list)


class AddPartitionsToTxnRequest(Request, api_key=ApiKey.ADD_PARTITIONS_TO_TXN):
    transactions: list[AddPartitionsToTxnTransaction] = array(AddPartitionsToTxnTransaction, "4+", default_factory=list)
    v3_and_below_transactional_id: str = string("0-3", default="")
    v3_and_below_producer_id: int = int64("0-3", default=0)
    v3_and_below_producer_epoch: int = int16("0-3", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "0-3", default_factory=list)


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: int = int32(default=0)
    partition_error_code: int = int16(default=0)


class AddPartitionsToTxnTopicResult(Struct):
    name: str = string(default="")
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(
        AddPartitionsToTxnPartitionResult, default_factory=list
    )


class AddPartitionsToTxnResult(Struct):
    """The response for one transaction of a batched request (v4 and later)."""

    transactional_id: str = string("4+", default="")
    topic_results: list[AddPartitionsToTxnTopicResult] = array(
        AddPartitionsToTxnTopicResult, "4+", default_factory=list
    )


class AddPartitionsToTxnResponse(Response, api_key=ApiKey.ADD_PARTITIONS_TO_TXN):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16("4+", default=0, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = array(AddPartitionsToTxnResult, "4+", default_factory=list)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(
        AddPartitionsToTxnTopicResult, "0-3", default_factory=list
    )
