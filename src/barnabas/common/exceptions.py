"""The exceptions of Kafka's error codes, one class for each code, in the order of the codes.

Import them from `barnabas.common.errors`, which also has the table of codes. The docstring of a class is the default
message of its errors. Names are Kafka's with `Error` for `Exception`. So is the hierarchy, which says how a client can
react to an error:

    ApiError                            it has an error code
    ├── RetriableError                  retry the same request
    │   └── RefreshRetriableError       ... after finding out where to send it
    │       └── InvalidMetadataError    ... because the topic's metadata was outdated
    ├── ApplicationRecoverableError     start again with a new producer or consumer
    ├── InvalidOffsetError              choose another offset
    └── InvalidConfigurationError       change a setting or a permission
        ├── AuthenticationError
        └── AuthorizationError
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

#: Every class below with its own code, by that code.
EXCEPTIONS: dict[int, type[ApiError]] = {}


class BarnabasError(Exception):
    """The base of everything that this package raises on purpose."""


class ProtocolError(BarnabasError):
    """Bytes violate the protocol; the message says what was wrong and where."""


class ApiError(BarnabasError):
    """An error with an error code.

    A subclass states its code in its first line; one without a code, such as a refinement for clients, has the code of
    its base:

        class InvalidTimestampError(ApiError, code=32): ...
    """

    code: int = -1
    retriable: bool = False

    def __init_subclass__(cls, code: int | None = None) -> None:
        if code is not None:
            other = EXCEPTIONS.setdefault(code, cls)
            if other is not cls:
                raise TypeError(f"{cls.__name__} and {other.__name__} have the same error code {code}")
            cls.code = code

    def __init__(self, message: str | None = None) -> None:
        super().__init__(self.summary() if message is None else message)

    @classmethod
    def summary(cls) -> str:
        """Returns the first line of the docstring, or the name if Python runs without docstrings (-OO)."""
        return (cls.__doc__ or cls.__name__).partition("\n")[0]


class RetriableError(ApiError):
    """A temporary error: the same request may succeed later."""

    retriable = True


class RefreshRetriableError(RetriableError):
    """The request went to the wrong broker: find the right one, then retry."""


class InvalidMetadataError(RefreshRetriableError):
    """The client's metadata of the topic is outdated."""


class ApplicationRecoverableError(ApiError):
    """This producer or consumer cannot continue, but the application can with a new one."""


class InvalidOffsetError(ApiError):
    """The partition has no record at this offset."""


class InvalidConfigurationError(ApiError, code=40):
    """A setting has an invalid value."""


class AuthenticationError(InvalidConfigurationError):
    """The client could not be authenticated."""


class SslAuthenticationError(AuthenticationError):
    """The TLS handshake failed. Trying again with the same settings is useless."""


class AuthorizationError(InvalidConfigurationError):
    """The principal lacks a permission."""


class UnknownServerError(ApiError, code=-1):
    """The broker had an unexpected error; see its log."""


class OffsetOutOfRangeError(InvalidOffsetError, code=1):
    """The partition has no record at this offset: it is already deleted or not yet written."""


class CorruptRecordError(RetriableError, code=2):
    """A record batch is corrupt: wrong checksum, lengths or counts."""


class UnknownTopicOrPartitionError(InvalidMetadataError, code=3):
    """This broker does not know the topic or partition; it may not exist, or the metadata may be outdated."""


class InvalidFetchSizeError(ApiError, code=4):
    """A fetch requested an invalid number of bytes."""


class LeaderNotAvailableError(InvalidMetadataError, code=5):
    """The partition has no leader now; an election usually follows soon."""


class NotLeaderOrFollowerError(InvalidMetadataError, code=6):
    """The broker is neither the leader nor a follower of the partition."""


class KafkaTimeoutError(RetriableError, TimeoutError, code=7):
    """The request timed out; it may or may not have taken effect."""


class BrokerNotAvailableError(ApiError, code=8):
    """The broker is unreachable or not part of the cluster now."""


class ReplicaNotAvailableError(InvalidMetadataError, code=9):
    """The broker is a replica of this partition but cannot serve it now."""


class RecordTooLargeError(ApiError, code=10):
    """A record, or its batch, is larger than the broker or the topic accepts."""

    def __init__(
        self, message: str | None = None, *, record_too_large_partitions: Mapping[tuple[str, int], int] | None = None
    ) -> None:
        super().__init__(message)
        #: The size of the record in question, by (topic, partition).
        self.record_too_large_partitions = dict(record_too_large_partitions or {})


class ControllerMovedError(ApiError, code=11):
    """The request has the epoch of an earlier controller; another one has taken over."""


class OffsetMetadataTooLargeError(ApiError, code=12):
    """The metadata of a committed offset is longer than the broker accepts."""


class NetworkError(InvalidMetadataError, code=13):
    """The connection was lost before the response arrived; the request may or may not have taken effect."""


class CoordinatorLoadInProgressError(RetriableError, code=14):
    """The coordinator is still loading its state from the log."""


class CoordinatorNotAvailableError(RefreshRetriableError, code=15):
    """No broker is the coordinator of this group or transactional ID now."""


class NotCoordinatorError(RefreshRetriableError, code=16):
    """This broker is not the coordinator of this group or transactional ID; find it again."""


class InvalidTopicError(InvalidConfigurationError, code=17):
    """The topic name is invalid, or the topic is internal and not accessible to clients."""

    def __init__(self, message: str | None = None, *, invalid_topics: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.invalid_topics = frozenset(invalid_topics)


class RecordBatchTooLargeError(InvalidConfigurationError, code=18):
    """A record batch is larger than a segment of the log may be."""


class NotEnoughReplicasError(RetriableError, code=19):
    """Nothing was written: fewer replicas are in sync than min.insync.replicas requires."""


class NotEnoughReplicasAfterAppendError(RetriableError, code=20):
    """The records were written, but to fewer replicas than min.insync.replicas so far."""


class InvalidRequiredAcksError(InvalidConfigurationError, code=21):
    """The acks of a produce request must be 0, 1 or -1 (all)."""


class IllegalGenerationError(ApplicationRecoverableError, code=22):
    """The generation of the member is not the current one of the group."""


class InconsistentGroupProtocolError(ApiError, code=23):
    """The member has no protocol in common with the rest of its group, or none at all."""


class InvalidGroupIdError(ApiError, code=24):
    """The group ID is empty or otherwise invalid."""


class UnknownMemberIdError(ApplicationRecoverableError, code=25):
    """The group has no member with this ID; it may have been removed for missing heartbeats."""


class InvalidSessionTimeoutError(ApiError, code=26):
    """The session timeout is outside the bounds that the broker sets for groups."""


class RebalanceInProgressError(ApiError, code=27):
    """The group is rebalancing; the member must rejoin."""


class InvalidCommitOffsetSizeError(ApiError, code=28):
    """An offset commit is too large for one record."""


class TopicAuthorizationError(AuthorizationError, code=29):
    """The principal lacks a permission on one or more topics."""

    def __init__(self, message: str | None = None, *, unauthorized_topics: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.unauthorized_topics = frozenset(unauthorized_topics)


class GroupAuthorizationError(AuthorizationError, code=30):
    """The principal lacks a permission on the group."""

    def __init__(self, message: str | None = None, *, group_id: str | None = None) -> None:
        super().__init__(message)
        self.group_id = group_id


class ClusterAuthorizationError(AuthorizationError, code=31):
    """The principal lacks a permission on the cluster."""


class InvalidTimestampError(ApiError, code=32):
    """The timestamp of a record is too far from the broker's clock for this topic."""


class UnsupportedSaslMechanismError(AuthenticationError, code=33):
    """The listener does not support the requested SASL mechanism."""


class IllegalSaslStateError(AuthenticationError, code=34):
    """The request is not valid in this state of the SASL exchange."""


class UnsupportedVersionError(InvalidConfigurationError, code=35):
    """The version, or a field in this version, is not supported."""


class TopicExistsError(ApiError, code=36):
    """A topic with this name already exists."""


class InvalidPartitionsError(ApiError, code=37):
    """The number of partitions is invalid: less than one, or not more than the topic has."""


class InvalidReplicationFactorError(InvalidConfigurationError, code=38):
    """The replication factor is less than one or greater than the number of brokers."""


class InvalidReplicaAssignmentError(ApiError, code=39):
    """The manual replica assignment is invalid: unknown brokers, duplicates, or lists of different lengths."""


class NotControllerError(RetriableError, code=41):
    """This node is not the active controller; find it and send the request there."""


class InvalidRequestError(ApiError, code=42):
    """The request is inconsistent or violates the protocol, usually because of a bug or a wrong client version."""


class UnsupportedForMessageFormatError(InvalidConfigurationError, code=43):
    """The stored message format is too old for this request."""


class PolicyViolationError(ApiError, code=44):
    """A policy of the cluster forbids this."""


class OutOfOrderSequenceError(ApiError, code=45):
    """The sequence number of a batch does not follow the last one of its producer: a batch in between is missing."""


class DuplicateSequenceError(ApiError, code=46):
    """The broker already has this batch, from an earlier attempt of the same producer."""


class InvalidProducerEpochError(ApplicationRecoverableError, code=47):
    """The producer's epoch is older than the latest one in the partition."""


class InvalidTxnStateError(ApiError, code=48):
    """The state of the transaction does not allow this operation."""


class InvalidPidMappingError(ApplicationRecoverableError, code=49):
    """The producer ID does not, or no longer, belong to this transactional ID."""


class InvalidTxnTimeoutError(ApiError, code=50):
    """The transaction timeout is longer than the broker's transaction.max.timeout.ms."""


class ConcurrentTransactionsError(RetriableError, code=51):
    """The previous operation of the transactional ID is still in progress; retry soon."""


class TransactionCoordinatorFencedError(ApiError, code=52):
    """A transaction marker came from a coordinator that was replaced."""


class TransactionalIdAuthorizationError(AuthorizationError, code=53):
    """The principal lacks a permission on the transactional ID."""


class SecurityDisabledError(ApiError, code=54):
    """No authorizer is configured, so there are no ACLs."""


class OperationNotAttemptedError(ApiError, code=55):
    """The operation was not attempted because another one of the same request failed first."""


class KafkaStorageError(InvalidMetadataError, code=56):
    """The broker could not read or write the log on its disk."""


class LogDirNotFoundError(ApiError, code=57):
    """The broker has no log directory at this path."""


class SaslAuthenticationError(AuthenticationError, code=58):
    """The credentials were rejected during the SASL exchange."""


class UnknownProducerIdError(OutOfOrderSequenceError, code=59):
    """The broker has no state of this producer, probably because all its records were deleted."""


class ReassignmentInProgressError(ApiError, code=60):
    """A reassignment of the partition is already in progress."""


class DelegationTokenDisabledError(ApiError, code=61):
    """The cluster has no secret key for delegation tokens."""


class DelegationTokenNotFoundError(ApiError, code=62):
    """No delegation token matches."""


class DelegationTokenOwnerMismatchError(ApiError, code=63):
    """Only the owner of the token or one of its renewers may do this."""


class UnsupportedByAuthenticationError(ApiError, code=64):
    """Connections with this kind of authentication cannot request delegation tokens."""


class DelegationTokenAuthorizationError(AuthorizationError, code=65):
    """The principal lacks a permission on the delegation token."""


class DelegationTokenExpiredError(ApiError, code=66):
    """The delegation token has expired."""


class InvalidPrincipalTypeError(ApiError, code=67):
    """The type of the principal is unknown; use "User"."""


class GroupNotEmptyError(ApiError, code=68):
    """The group has members, so it cannot be deleted."""


class GroupIdNotFoundError(ApiError, code=69):
    """The group ID does not exist."""


class FetchSessionIdNotFoundError(RetriableError, code=70):
    """The broker has closed this fetch session; open a new one with a full fetch."""


class InvalidFetchSessionEpochError(RetriableError, code=71):
    """The epoch of the fetch session is wrong; open a new one with a full fetch."""


class ListenerNotFoundError(InvalidMetadataError, code=72):
    """The leader has no listener with the name that this client uses."""


class TopicDeletionDisabledError(ApiError, code=73):
    """The broker is configured with delete.topic.enable=false."""


class FencedLeaderEpochError(InvalidMetadataError, code=74):
    """The client's metadata has an older leader epoch than the broker."""


class UnknownLeaderEpochError(RetriableError, code=75):
    """The client's metadata has a newer leader epoch than the broker, which has to catch up."""


class UnsupportedCompressionTypeError(ApiError, code=76):
    """The compression type is not supported."""


class StaleBrokerEpochError(ApiError, code=77):
    """The request has an epoch from before the broker registered again."""


class OffsetNotAvailableError(RetriableError, code=78):
    """A new leader does not know the high watermark yet, so it cannot return an end offset."""


class MemberIdRequiredError(ApiError, code=79):
    """The coordinator has assigned a member ID; join again with it."""


class PreferredLeaderNotAvailableError(InvalidMetadataError, code=80):
    """The preferred leader of the partition is not available."""


class GroupMaxSizeReachedError(ApiError, code=81):
    """The group has the maximum number of members."""


class FencedInstanceIdError(ApplicationRecoverableError, code=82):
    """Another consumer uses this group.instance.id now."""


class EligibleLeadersNotAvailableError(InvalidMetadataError, code=83):
    """No eligible replica of the partition is available as leader."""


class ElectionNotNeededError(InvalidMetadataError, code=84):
    """The replica that would be elected is already the leader."""


class NoReassignmentInProgressError(ApiError, code=85):
    """No reassignment of the partition is in progress."""


class GroupSubscribedToTopicError(ApiError, code=86):
    """Offsets of a topic cannot be deleted while the group subscribes to it."""


class InvalidRecordError(InvalidConfigurationError, code=87):
    """A record batch is intact but violates a rule of the format."""


class UnstableOffsetCommitError(RetriableError, code=88):
    """The partition has offsets of an open transaction, so there is no stable offset now."""


class ThrottlingQuotaExceededError(RetriableError, code=89):
    """A quota is exceeded; retry after the throttle time."""

    def __init__(self, message: str | None = None, *, throttle_time_ms: int = 0) -> None:
        super().__init__(message)
        self.throttle_time_ms = throttle_time_ms


class ProducerFencedError(ApplicationRecoverableError, code=90):
    """Another producer with the same transactional ID has started and fenced this one."""


class ResourceNotFoundError(ApiError, code=91):
    """The request refers to a resource that does not exist."""

    def __init__(self, message: str | None = None, *, resource: str | None = None) -> None:
        super().__init__(message)
        self.resource = resource


class DuplicateResourceError(ApiError, code=92):
    """The request has the same resource more than once."""

    def __init__(self, message: str | None = None, *, resource: str | None = None) -> None:
        super().__init__(message)
        self.resource = resource


class UnacceptableCredentialError(ApiError, code=93):
    """The credential is too weak or malformed, for example with too few SCRAM iterations."""


class InconsistentVoterSetError(ApiError, code=94):
    """Sender and receiver have different voter sets."""


class InvalidUpdateVersionError(ApiError, code=95):
    """The feature cannot be changed to this level."""


class FeatureUpdateFailedError(ApiError, code=96):
    """The features could not be updated; see the controller's log."""


class PrincipalDeserializationError(ApiError, code=97):
    """The principal of a forwarded request could not be decoded; broker and controller are configured differently."""


class SnapshotNotFoundError(ApiError, code=98):
    """The leader of the quorum no longer has this snapshot."""


class PositionOutOfRangeError(ApiError, code=99):
    """The position is before the start or after the end of the snapshot."""


class UnknownTopicIdError(InvalidMetadataError, code=100):
    """This broker does not know a topic with this ID; it may be deleted, or the metadata may be outdated."""


class DuplicateBrokerRegistrationError(ApiError, code=101):
    """Another active broker has this node ID."""


class BrokerIdNotRegisteredError(ApiError, code=102):
    """No broker with this ID is registered with the controller."""


class InconsistentTopicIdError(InvalidMetadataError, code=103):
    """The topic IDs of the request and of the log differ: the topic was deleted and created again."""


class InconsistentClusterIdError(ApiError, code=104):
    """The request has the ID of another cluster."""


class TransactionalIdNotFoundError(ApiError, code=105):
    """The coordinator has no state of this transactional ID."""


class FetchSessionTopicIdError(RetriableError, code=106):
    """The fetch session mixes topic names and topic IDs."""


class IneligibleReplicaError(ApiError, code=107):
    """A replica that is fenced or shutting down cannot join the ISR."""


class NewLeaderElectedError(ApiError, code=108):
    """The change was applied, and caused the election of another leader."""


class OffsetMovedToTieredStorageError(ApiError, code=109):
    """The leader has this offset only in remote storage; a follower must start later."""


class FencedMemberEpochError(ApiError, code=110):
    """The coordinator has fenced this member epoch; the member must abandon its partitions and rejoin."""


class UnreleasedInstanceIdError(ApiError, code=111):
    """Another member of the group still uses this instance ID."""


class UnsupportedAssignorError(ApiError, code=112):
    """The group coordinator does not support this assignor."""


class StaleMemberEpochError(ApiError, code=113):
    """The member epoch is outdated; the next heartbeat returns the new one."""


class MismatchedEndpointTypeError(ApiError, code=114):
    """A request for brokers reached a controller, or vice versa."""


class UnsupportedEndpointTypeError(ApiError, code=115):
    """This endpoint type is not supported."""


class UnknownControllerIdError(ApiError, code=116):
    """No controller has this ID."""


class UnknownSubscriptionIdError(ApiError, code=117):
    """The telemetry subscription of the pushed metrics is outdated; request the current one."""


class TelemetryTooLargeError(ApiError, code=118):
    """The pushed metrics are larger than the broker accepts."""


class InvalidRegistrationError(ApiError, code=119):
    """The registration of the broker is inconsistent."""


class TransactionAbortableError(ApiError, code=120):
    """This transaction can only be aborted; afterwards the producer may continue."""


class InvalidRecordStateError(ApiError, code=121):
    """The member of the share group cannot acknowledge the record, because it does not, or no longer, hold its lock."""


class ShareSessionNotFoundError(RetriableError, code=122):
    """The broker has closed this share session; open a new one."""


class InvalidShareSessionEpochError(RetriableError, code=123):
    """The epoch of the share session is wrong; open a new one."""


class FencedStateEpochError(ApiError, code=124):
    """The state of the share group has a newer epoch."""


class InvalidVoterKeyError(ApiError, code=125):
    """The node ID matches but the directory ID does not: the voter has another log directory."""


class DuplicateVoterError(ApiError, code=126):
    """The node is already a voter."""


class VoterNotFoundError(ApiError, code=127):
    """The node is not a voter."""


class InvalidRegularExpressionError(ApiError, code=128):
    """The regular expression of the subscription is invalid."""


class RebootstrapRequiredError(ApiError, code=129):
    """The client's metadata of the cluster is unusable; it must start again from its bootstrap servers."""


class StreamsInvalidTopologyError(ApiError, code=130):
    """The streams topology is inconsistent, or does not match the existing topics."""


class StreamsInvalidTopologyEpochError(ApiError, code=131):
    """The epoch of the streams topology is invalid."""


class StreamsTopologyFencedError(ApiError, code=132):
    """The group has a streams topology with a newer epoch."""


class ShareSessionLimitReachedError(RetriableError, code=133):
    """The broker has the maximum number of share sessions."""


class GroupDeletionFailedError(ApiError, code=134):
    """The group could not be deleted; see the error message."""


class StreamsTopologyDescriptionUpdateFailedError(ApiError, code=135):
    """The description of a streams topology could not be stored."""


class ControllerIdNotRegisteredError(ApiError, code=136):
    """No controller with this ID is registered."""
