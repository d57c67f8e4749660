"""The voters of the quorum: their ids, endpoints and supported versions.

Before KIP-853 the voters were a setting, ``controller.quorum.voters``, the same on all nodes, and a node id identified
a voter. Since then they can be a record in the log, so that they can change at run time, and a voter is its node id
*and its directory id*: a node that has lost its disk returns with another directory id, so it cannot vote as if it
still had the records and votes that it had promised to keep.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from barnabas.common.dataclass import dataclass, field
from barnabas.common.identifiers import ZERO_UUID, Uuid, uuid_to_string
from barnabas.protocol.internal.raft import Endpoint, KRaftVersionFeature, VotersRecord, VotersVoter
from barnabas.protocol.versions import VersionRange

KRAFT_VERSION_0: Final = 0
"""Static voters."""
KRAFT_VERSION_1: Final = 1
"""Voters are in the log (KIP-853)."""
SUPPORTED_KRAFT_VERSIONS: Final = VersionRange(KRAFT_VERSION_0, KRAFT_VERSION_1)
VOTERS_RECORD_VERSION: Final = 0


class ReplicaKey(NamedTuple):
    """A replica of the metadata log; without a directory id if the voters are static, or the node is older."""

    id: int
    directory_id: Uuid | None = None

    def __str__(self) -> str:
        return f"{self.id}" if self.directory_id is None else f"{self.id} ({uuid_to_string(self.directory_id)})"


class VoterEndpoint(NamedTuple):
    """A listener of a voter."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class VoterNode:
    """A voter, its listeners, and the levels of ``kraft.version`` that it supports."""

    key: ReplicaKey
    endpoints: tuple[VoterEndpoint, ...] = ()
    supported_kraft_versions: VersionRange = SUPPORTED_KRAFT_VERSIONS

    def is_voter(self, key: ReplicaKey) -> bool:
        """Whether `key` is this voter. If this voter's directory id is unknown, any matches."""
        if self.key.id != key.id:
            return False
        return self.key.directory_id is None or self.key.directory_id == key.directory_id


@dataclass(frozen=True, slots=True)
class VoterSet:
    """The voters by id. Immutable: a change returns a new set."""

    voters: Mapping[int, VoterNode] = field(default_factory=dict)

    @classmethod
    def of(cls, nodes: Iterable[VoterNode]) -> VoterSet:
        return cls(MappingProxyType({node.key.id: node for node in nodes}))

    @classmethod
    def from_record(cls, record: VotersRecord) -> VoterSet:
        return cls.of(
            VoterNode(
                ReplicaKey(voter.voter_id, _directory_or_none(voter.voter_directory_id)),
                tuple(VoterEndpoint(endpoint.name, endpoint.host, endpoint.port) for endpoint in voter.endpoints),
                VersionRange(
                    voter.k_raft_version_feature.min_supported_version,
                    voter.k_raft_version_feature.max_supported_version,
                ),
            )
            for voter in record.voters
        )

    def to_record(self) -> VotersRecord:
        return VotersRecord(
            version=VOTERS_RECORD_VERSION,
            voters=[
                VotersVoter(
                    voter_id=node.key.id,
                    voter_directory_id=ZERO_UUID if node.key.directory_id is None else node.key.directory_id,
                    endpoints=[Endpoint(name=name, host=host, port=port) for name, host, port in node.endpoints],
                    k_raft_version_feature=KRaftVersionFeature(
                        min_supported_version=node.supported_kraft_versions.lowest,
                        max_supported_version=node.supported_kraft_versions.highest,
                    ),
                )
                for node in self
            ],
        )

    def __iter__(self) -> Iterator[VoterNode]:
        """Yields the voters in the order of their ids."""
        return (node for _, node in sorted(self.voters.items()))

    def __len__(self) -> int:
        return len(self.voters)

    def __str__(self) -> str:
        return f"[{', '.join(str(node.key) for node in self)}]"

    @property
    def voter_ids(self) -> frozenset[int]:
        return frozenset(self.voters)

    def is_voter(self, key: ReplicaKey) -> bool:
        node = self.voters.get(key.id)
        return node is not None and node.is_voter(key)

    def is_only_voter(self, key: ReplicaKey) -> bool:
        return len(self.voters) == 1 and self.is_voter(key)

    def needs_update(self, node: VoterNode) -> bool:
        """Whether this voter is in the set, but with outdated listeners or versions."""
        known = self.voters.get(node.key.id)
        return known is not None and known.is_voter(node.key) and known != node

    def with_voter(self, node: VoterNode) -> VoterSet:
        """Returns the set with this voter's data replaced; ValueError if it is not a voter."""
        if not self.is_voter(node.key):
            raise ValueError(f"{node.key} is not among the voters {self}")
        return VoterSet.of([*(other for other in self if other.key.id != node.key.id), node])


NO_VOTERS: Final = VoterSet()


class Membership(NamedTuple):
    """The voters in force, and the level of ``kraft.version``, which determines where they are kept."""

    voters: VoterSet
    kraft_version: int = KRAFT_VERSION_0
    voters_offset: int | None = None
    """The offset of the voters in the log, -1 if only in the snapshot from formatting; None if they are static."""


def _directory_or_none(directory_id: Uuid) -> Uuid | None:
    return None if directory_id == ZERO_UUID else directory_id
