"""DOC raft."""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.fields import array, int16, int32, int64, string, struct, uint16, uuid
from barnabas.protocol.message import Message, Struct


class LeaderChangeVoter(Struct):
    voter_id: int = int32(default=0)
    voter_directory_id: Uuid = uuid("1+", default=ZERO_UUID)


class LeaderChangeMessage(Message, versions="0-1", flexible="0+"):
    version: int = int16(default=0)
    leader_id: int = int32(default=0)
    voters: list[LeaderChangeVoter] = array(LeaderChangeVoter, default_factory=list)
    granting_voters: list[LeaderChangeVoter] = array(LeaderChangeVoter, default_factory=list)


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    version: int = int16(default=0)
    last_contained_log_timestamp: int = int64(default=0)


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    version: int = int16(default=0)


class KRaftVersionRecord(Message, versions="0", flexible="0+"):
    version: int = int16(default=0)
    k_raft_version: int = int16(default=0)


class Endpoint(Struct):
    name: str = string(default="")
    host: str = string(default="")
    port: int = uint16(default=0)


class KRaftVersionFeature(Struct):
    min_supported_version: int = int16(default=0)
    max_supported_version: int = int16(default=0)


class VotersVoter(Struct):
    voter_id: int = int32(default=0)
    voter_directory_id: Uuid = uuid(default=ZERO_UUID)
    endpoints: list[Endpoint] = array(Endpoint, default_factory=list)
    k_raft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature, default_factory=KRaftVersionFeature)


class VotersRecord(Message, versions="0", flexible="0+"):
    version: int = int16(default=0)
    voters: list[VotersVoter] = array(VotersVoter, default_factory=list)


class QuorumStateVoter(Struct):
    voter_id: int = int32("0", default=0)


class QuorumStateData(Message, versions="0-1", flexible="0+"):
    cluster_id: str = string("0", default="")
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)
    voted_id: int = int32(default=-1)
    voted_directory_id: Uuid = uuid("1+", default=ZERO_UUID)
    applied_offset: int = int64("0", default=0)
    current_voters: list[QuorumStateVoter] | None = array(QuorumStateVoter, "0", default_factory=list, nullable="0")
