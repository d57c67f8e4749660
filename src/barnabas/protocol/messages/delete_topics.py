"""DeleteTopics (API 20): deletes topics, by name or by id.

Forwarded to the controller. Success means that the topic is removed from the metadata; brokers delete the data in the
background. Deleting by id is safer: by the time the request arrives, the *name* may belong to a new topic.

The response does not reveal a topic to a caller that may not describe it: for a deletion by id, the name is null.
TOPIC_DELETION_DISABLED when ``delete.topic.enable`` is off. Up to v5 the names are in ``topic_names``.

Versions: v2 client-side throttling (KIP-219); v3 TOPIC_DELETION_DISABLED; v4 flexible; v5 error messages,
THROTTLING_QUOTA_EXCEEDED (KIP-599); v6 ``topics`` with a name or an id, the other one left empty (KIP-516).
"""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int16, int32, string, uuid
from barnabas.protocol.message import Request, Response, Struct


class DeleteTopicState(Struct):
    name: str | None = string("6+", default=None, nullable="6+")
    topic_id: Uuid = uuid("6+", default=ZERO_UUID)


class DeleteTopicsRequest(Request, api_key=ApiKey.DELETE_TOPICS):
    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+", default_factory=list)
    topic_names: list[str] = array("string", "0-5", default_factory=list, ignorable=True)
    timeout_ms: int = int32(default=0)


class DeletableTopicResult(Struct):
    name: str | None = string(default="", nullable="6+")
    topic_id: Uuid = uuid("6+", default=ZERO_UUID, ignorable=True)
    error_code: int = int16(default=0)
    error_message: str | None = string("5+", default=None, nullable="5+", ignorable=True)


class DeleteTopicsResponse(Response, api_key=ApiKey.DELETE_TOPICS):
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult, default_factory=list)
