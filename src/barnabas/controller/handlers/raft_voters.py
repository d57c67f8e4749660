"""AddRaftVoter (v0-1) and RemoveRaftVoter (v0): changes of the voters of the metadata log (KIP-853).

Both need Alter on the cluster and the leader of the log: another node responds with NOT_LEADER_OR_FOLLOWER.

The quorum has one voter, this node, so each request gets its response at once, and nothing is ever written::

    another cluster's id                                 INCONSISTENT_CLUSTER_ID
    no voter id, no directory id                         INVALID_REQUEST
    to add one that is not on the controllers' listener  INVALID_REQUEST
    kraft.version is 0, voters are static                UNSUPPORTED_VERSION
    to add an existing voter                             DUPLICATE_VOTER
    to add another voter                                 UNSUPPORTED_VERSION
    to remove an unknown voter, or the last one          VOTER_NOT_FOUND

To add another voter, Kafka would ask it for its supported versions, and wait until it has caught up. No node can catch
up here, because the log is not replicated.

Voters send UpdateRaftVoter to a leader on another node. There are no such voters, so it is not served.
"""

from __future__ import annotations

from barnabas.common.errors import (
    ApiError,
    DuplicateVoterError,
    InconsistentClusterIdError,
    InvalidRequestError,
    KafkaTimeoutError,
    UnsupportedVersionError,
    VoterNotFoundError,
)
from barnabas.common.identifiers import ZERO_UUID, Uuid, uuid_to_string
from barnabas.controller.handlers.backend import Backend
from barnabas.controller.handlers.quorum import DescribeQuorum
from barnabas.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from barnabas.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from barnabas.raft.leader_state import UNKNOWN
from barnabas.raft.quorum_info import QuorumInfo
from barnabas.raft.voter_set import KRAFT_VERSION_1
from barnabas.security.acl import AclOperation
from barnabas.server.request import Request
from barnabas.server.request_local import RequestLocal


class RaftVotersHandler:
    """Refuses all changes of the voters, with the reason."""

    def __init__(self, backend: Backend, cluster_id: str, describe: DescribeQuorum) -> None:
        self._backend = backend
        self._cluster_id = cluster_id
        self._describe = describe

    def add_raft_voter(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, AddRaftVoterRequest)
        self._backend.authorize_cluster(request, AclOperation.ALTER)
        error = self._why_not_added(body)
        self._backend.send(request, AddRaftVoterResponse(error_code=error.code, error_message=str(error)))

    def remove_raft_voter(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, RemoveRaftVoterRequest)
        self._backend.authorize_cluster(request, AclOperation.ALTER)
        error = self._why_not_removed(body)
        self._backend.send(request, RemoveRaftVoterResponse(error_code=error.code, error_message=str(error)))

    def _why_not_added(self, body: AddRaftVoterRequest) -> ApiError:
        try:
            quorum = self._quorum(body)
            listener = quorum.nodes[0].listeners[0].name
            if all(endpoint.name.upper() != listener for endpoint in body.listeners):
                raise InvalidRequestError(f"The voter has no address for the controllers' listener {listener}.")
            _throw_if_static(quorum)
            if any(voter.replica_id == body.voter_id for voter in quorum.current_voters):
                raise DuplicateVoterError(f"Node {body.voter_id} is already a voter: {_voters(quorum)}.")
        except ApiError as error:
            return error
        return UnsupportedVersionError(
            f"Node {body.voter_id} cannot become a voter: this controller does not replicate the metadata log yet."
        )

    def _why_not_removed(self, body: RemoveRaftVoterRequest) -> ApiError:
        try:
            quorum = self._quorum(body)
            _throw_if_static(quorum)
        except ApiError as error:
            return error
        voter = _voter(body.voter_id, body.voter_directory_id)
        return VoterNotFoundError(f"Voter {voter} cannot be removed from the voters {_voters(quorum)}.")

    def _quorum(self, body: AddRaftVoterRequest | RemoveRaftVoterRequest) -> QuorumInfo:
        """Checks the request and returns the quorum. The checks are in Kafka's order."""
        if body.cluster_id is not None and body.cluster_id != self._cluster_id:
            raise InconsistentClusterIdError(f"The cluster ID is {self._cluster_id}, not {body.cluster_id}.")
        quorum = self._describe()
        if body.voter_id < 0 or body.voter_directory_id == ZERO_UUID:
            raise InvalidRequestError("A voter needs a node ID and a directory ID.")
        return quorum


def _throw_if_static(quorum: QuorumInfo) -> None:
    if quorum.high_watermark == UNKNOWN:
        raise KafkaTimeoutError("The leader does not know the high watermark yet.")
    if quorum.kraft_version < KRAFT_VERSION_1:
        raise UnsupportedVersionError(f"The voters cannot change while kraft.version is {quorum.kraft_version}.")


def _voters(quorum: QuorumInfo) -> str:
    return ", ".join(_voter(voter.replica_id, voter.replica_directory_id) for voter in quorum.current_voters)


def _voter(node_id: int, directory_id: Uuid) -> str:
    return f"{node_id} (directory {uuid_to_string(directory_id)})"
