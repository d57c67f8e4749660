"""RemoveRaftVoter (API 81): removes a controller from the metadata quorum (KIP-853).

An administrator's request, forwarded; the raft leader appends a VotersRecord without the voter and responds once that
is committed by the *new* set. A leader that removes itself resigns afterwards. Id and directory id must both match
(VOTER_NOT_FOUND). ``cluster_id`` null skips the check of the cluster. The node stays registered as a controller: see
UnregisterController.
"""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import int16, int32, string, uuid
from barnabas.protocol.message import Request, Response


class RemoveRaftVoterRequest(Request, api_key=ApiKey.REMOVE_RAFT_VOTER):
    cluster_id: str | None = string(default="", nullable="0+")
    voter_id: int = int32(default=0)
    voter_directory_id: Uuid = uuid(default=ZERO_UUID)


class RemoveRaftVoterResponse(Response, api_key=ApiKey.REMOVE_RAFT_VOTER):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(default="", nullable="0+", ignorable=True)
