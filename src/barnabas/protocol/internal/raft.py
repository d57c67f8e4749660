"""The data of the raft layer: control records in the metadata log, and the quorum state file.

Control records are in control batches between the metadata records, which never include them; their key is a
:class:`~barnabas.protocol.internal.storage.ControlRecordTypeSchema` (2 leader change, 3 snapshot header, 4 snapshot
footer, 5 ``kraft.version``, 6 voters). Each value opens with its own version number. Snapshots contain them too: header
first, footer last, and a snapshot without its footer is not complete.

``kraft.version`` and the voter set are records rather than configuration since KIP-853, and they take effect when they
are *appended*, committed or not, as Raft requires for membership changes. If they are truncated, the previous ones take
effect again. The newest of each kind replaces all earlier ones.
"""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.fields import array, int16, int32, int64, string, struct, uint16, uuid
from barnabas.protocol.message import Message, Struct


class LeaderChangeVoter(Struct):
    voter_id: int = int32(default=0)
    voter_directory_id: Uuid = uuid("1+", default=ZERO_UUID)


class LeaderChangeMessage(Message, versions="0-1", flexible="0+"):
    """The first record of every epoch: the leader, the voters, and the voters that granted their vote.

    Once it is committed, all records of earlier epochs are committed too.

    Versions: v1 directory ids (KIP-853).
    """

    version: int = int16(default=0)
    leader_id: int = int32(default=0)
    voters: list[LeaderChangeVoter] = array(LeaderChangeVoter, default_factory=list)
    granting_voters: list[LeaderChangeVoter] = array(LeaderChangeVoter, default_factory=list)


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    """Opens a snapshot; the timestamp is that of the last log record that the snapshot contains."""

    version: int = int16(default=0)
    last_contained_log_timestamp: int = int64(default=0)


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    """Closes a snapshot."""

    version: int = int16(default=0)


class KRaftVersionRecord(Message, versions="0", flexible="0+"):
    """The level of ``kraft.version``: at 0 the voters come from the configuration, at 1 from VotersRecord."""

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
    """The whole voter set. It differs from the previous one by at most one voter."""

    version: int = int16(default=0)
    voters: list[VotersVoter] = array(VotersVoter, default_factory=list)


class QuorumStateVoter(Struct):
    voter_id: int = int32("0", default=0)


class QuorumStateData(Message, versions="0-1", flexible="0+"):
    """The file ``quorum-state``: raft state that must survive restarts, written as JSON before the node acts on it.

    Without the vote (``voted_id``, -1 for none) in ``leader_epoch``, a restarted node could vote twice. The state is
    not in the log: each node has its own.

    Versions: v0 also holds the voters, as configured; v1 leaves those to VotersRecord and adds the directory of the
    candidate voted for (KIP-853).
    """

    cluster_id: str = string("0", default="")
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)
    voted_id: int = int32(default=-1)
    voted_directory_id: Uuid = uuid("1+", default=ZERO_UUID)
    applied_offset: int = int64("0", default=0)
    current_voters: list[QuorumStateVoter] | None = array(QuorumStateVoter, "0", default_factory=list, nullable="0")
