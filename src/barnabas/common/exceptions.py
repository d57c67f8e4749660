"""The exceptions of Kafka's error codes, one class for each code, in the order of the codes.

Import them from `barnabas.common.errors`, which also has the table of codes. The docstring of a class is the message of
its errors when nobody gives a better one. Names are Kafka's with `Error` for `Exception`. So is the hierarchy, which
says what a client can do about an error:

    ApiError                            it has a code on the wire
    ├── RetriableError                  send the same again, and it may work
    │   └── RefreshRetriableError       ... but first ask again where to send it
    │       └── InvalidMetadataError    ... because the topic's metadata was out of date
    ├── ApplicationRecoverableError     start again with a new producer or consumer
    ├── InvalidOffsetError              choose another offset
    └── InvalidConfigurationError       change a setting or a right
        ├── AuthenticationError
        └── AuthorizationError
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

#: Every class below that has a code of its own, by that code.
EXCEPTIONS: dict[int, type[ApiError]] = {}


class BarnabasError(Exception):
    """The root of everything this package raises on purpose."""


class ProtocolError(BarnabasError):
    """Bytes that the protocol does not allow; the message says what was wrong and where."""


class ApiError(BarnabasError):
    """An error that has a code on the wire.

    A subclass states its code in its first line; one without a code, such as a refinement that only a client needs to
    tell apart, goes by the code of its base:

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
        """The first line of the docstring, or the bare name where Python runs without docstrings (-OO)."""
        return (cls.__doc__ or cls.__name__).partition("\n")[0]


class RetriableError(ApiError):
    """Something that passes: the same request may succeed later."""

    retriable = True


class RefreshRetriableError(RetriableError):
    """The request went to the wrong place: find out the right one, then try again."""


class InvalidMetadataError(RefreshRetriableError):
    """What the client knows about the topic is out of date."""


class ApplicationRecoverableError(ApiError):
    """This producer or consumer cannot go on, but the application can with a new one."""


class InvalidOffsetError(ApiError):
    """The partition has nothing to read at this offset."""


class InvalidConfigurationError(ApiError, code=40):
    """A setting has a value that is not allowed."""


class AuthenticationError(InvalidConfigurationError):
    """The broker does not believe that the client is who it says."""


class AuthorizationError(InvalidConfigurationError):
    """The principal lacks a permission."""


class UnknownServerError(ApiError, code=-1):
    """The broker ran into something it did not expect; only its log can tell what."""


class OffsetOutOfRangeError(InvalidOffsetError, code=1):
    """The partition has no record at this offset: it is already deleted or not yet written."""


class CorruptRecordError(RetriableError, code=2):
    """A record batch that is damaged: bad checksum, broken lengths, lying counts."""


class UnknownTopicOrPartitionError(InvalidMetadataError, code=3):
    """This broker does not know the topic or partition; it may not exist, or the metadata may be old."""


class InvalidFetchSizeError(ApiError, code=4):
    """A fetch asked for a number of bytes that makes no sense."""


class LeaderNotAvailableError(InvalidMetadataError, code=5):
    """The partition has no leader just now; an election usually ends this soon."""


class NotLeaderOrFollowerError(InvalidMetadataError, code=6):
    """The request went to a broker that does not lead the partition, or does not hold a replica of it."""


class KafkaTimeoutError(RetriableError, TimeoutError, code=7):
    """The time limit passed before the request was done; whether it took effect is not known."""


class BrokerNotAvailableError(ApiError, code=8):
    """The broker cannot be reached or is not part of the cluster at the moment."""


class ReplicaNotAvailableError(InvalidMetadataError, code=9):
    """The broker should hold a replica of this partition but cannot serve it at the moment."""


class RecordTooLargeError(ApiError, code=10):
    """A record, or the batch it is in, is bigger than the broker or the topic accepts."""

    def __init__(
        self, message: str | None = None, *, record_too_large_partitions: Mapping[tuple[str, int], int] | None = None
    ) -> None:
        super().__init__(message)
        #: The size of the record in question, by (topic, partition).
        self.record_too_large_partitions = dict(record_too_large_partitions or {})


class ControllerMovedError(ApiError, code=11):
    """The request carries the epoch of an earlier controller; another one has taken over."""


class OffsetMetadataTooLargeError(ApiError, code=12):
    """The note that goes with a committed offset is longer than the broker accepts."""


class NetworkError(InvalidMetadataError, code=13):
    """The connection broke before the answer came; whether the request took effect is not known."""


class CoordinatorLoadInProgressError(RetriableError, code=14):
    """The coordinator is still reading its state from the log and cannot answer yet."""


class CoordinatorNotAvailableError(RefreshRetriableError, code=15):
    """No broker acts as coordinator for this group or transactional id at the moment."""


class NotCoordinatorError(RefreshRetriableError, code=16):
    """This broker is not the coordinator of this group or transactional id; look it up again."""


class InvalidTopicError(InvalidConfigurationError, code=17):
    """The topic name breaks the naming rules, or the topic is an internal one that clients may not touch."""

    def __init__(self, message: str | None = None, *, invalid_topics: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.invalid_topics = frozenset(invalid_topics)


class RecordBatchTooLargeError(InvalidConfigurationError, code=18):
    """A record batch is bigger than one segment of the log may become."""


class NotEnoughReplicasError(RetriableError, code=19):
    """Nothing was written: fewer replicas are in sync than min.insync.replicas asks for."""


class NotEnoughReplicasAfterAppendError(RetriableError, code=20):
    """The records were written, but fewer replicas than min.insync.replicas have them so far."""


class InvalidRequiredAcksError(InvalidConfigurationError, code=21):
    """The acks of a produce request may only be 0, 1 or -1 (all)."""


class IllegalGenerationError(ApplicationRecoverableError, code=22):
    """The member speaks of a generation of the group that is not the current one."""


class InconsistentGroupProtocolError(ApiError, code=23):
    """The member offers no protocol that the rest of its group could agree on, or none at all."""


class InvalidGroupIdError(ApiError, code=24):
    """The group id is empty or otherwise not usable."""


class UnknownMemberIdError(ApplicationRecoverableError, code=25):
    """The group has no member of this id; it may have been expelled for missing its heartbeats."""


class InvalidSessionTimeoutError(ApiError, code=26):
    """The session timeout is outside the bounds that the broker sets for groups."""


class RebalanceInProgressError(ApiError, code=27):
    """The group is handing out its partitions anew; the member has to join again."""


class InvalidCommitOffsetSizeError(ApiError, code=28):
    """An offset commit is too big to be stored as one record."""


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
    """The principal lacks a permission on the cluster as a whole."""


class InvalidTimestampError(ApiError, code=32):
    """A record's timestamp is too far from the broker's clock for this topic."""


class UnsupportedSaslMechanismError(AuthenticationError, code=33):
    """The listener does not offer the SASL mechanism that the client asked for."""


class IllegalSaslStateError(AuthenticationError, code=34):
    """This request has no place at this point of the SASL exchange."""


class UnsupportedVersionError(InvalidConfigurationError, code=35):
    """A version, or a field in a version, that is not supported."""


class TopicExistsError(ApiError, code=36):
    """There is a topic of this name already."""


class InvalidPartitionsError(ApiError, code=37):
    """The partition count is not possible: below one, or not more than the topic has already."""


class InvalidReplicationFactorError(InvalidConfigurationError, code=38):
    """The replication factor is below one or asks for more replicas than there are brokers."""


class InvalidReplicaAssignmentError(ApiError, code=39):
    """The replicas given by hand do not fit: unknown brokers, repeats, or uneven lists."""


class NotControllerError(RetriableError, code=41):
    """This node is not the active controller; find out who is and ask there."""


class InvalidRequestError(ApiError, code=42):
    """The request contradicts itself or the protocol; a client bug or a version mix-up is the usual cause."""


class UnsupportedForMessageFormatError(InvalidConfigurationError, code=43):
    """The stored batch format is too old for what was asked."""


class PolicyViolationError(ApiError, code=44):
    """A policy that the cluster's operator has installed forbids this."""


class OutOfOrderSequenceError(ApiError, code=45):
    """A batch's sequence number does not follow the last one of its producer: a batch in between is missing."""


class DuplicateSequenceError(ApiError, code=46):
    """The broker has this batch already, from an earlier try of the same producer."""


class InvalidProducerEpochError(ApplicationRecoverableError, code=47):
    """The producer's epoch is older than the one the partition has seen."""


class InvalidTxnStateError(ApiError, code=48):
    """The transaction is in a state that does not allow this operation."""


class InvalidPidMappingError(ApplicationRecoverableError, code=49):
    """The producer id is not, or no longer, the one that belongs to this transactional id."""


class InvalidTxnTimeoutError(ApiError, code=50):
    """The transaction timeout is longer than transaction.max.timeout.ms of the broker."""


class ConcurrentTransactionsError(RetriableError, code=51):
    """The transactional id is still busy with the step before; try again shortly."""


class TransactionCoordinatorFencedError(ApiError, code=52):
    """A transaction marker came from a coordinator that has been replaced."""


class TransactionalIdAuthorizationError(AuthorizationError, code=53):
    """The principal lacks a permission on the transactional id."""


class SecurityDisabledError(ApiError, code=54):
    """No authorizer is configured, so there are no access rules to read or change."""


class OperationNotAttemptedError(ApiError, code=55):
    """Left undone because another operation of the same request failed first."""


class KafkaStorageError(InvalidMetadataError, code=56):
    """The broker could not read or write the log on its disk."""


class LogDirNotFoundError(ApiError, code=57):
    """The broker has no log directory at this path."""


class SaslAuthenticationError(AuthenticationError, code=58):
    """The credentials were refused during the SASL exchange."""


class UnknownProducerIdError(OutOfOrderSequenceError, code=59):
    """The broker has no memory of this producer, most likely because all its records have been deleted."""


class ReassignmentInProgressError(ApiError, code=60):
    """The partition is being moved to other brokers already."""


class DelegationTokenDisabledError(ApiError, code=61):
    """The cluster has no key for delegation tokens and so cannot issue or check any."""


class DelegationTokenNotFoundError(ApiError, code=62):
    """No delegation token matches."""


class DelegationTokenOwnerMismatchError(ApiError, code=63):
    """Only the token's owner or one of its renewers may do this."""


class UnsupportedByAuthenticationError(ApiError, code=64):
    """The way this connection was authenticated may not be used to ask for delegation tokens."""


class DelegationTokenAuthorizationError(AuthorizationError, code=65):
    """The principal lacks a permission on the delegation token."""


class DelegationTokenExpiredError(ApiError, code=66):
    """The delegation token is past its end."""


class InvalidPrincipalTypeError(ApiError, code=67):
    """The type of a principal is one the broker does not know; "User" is the usual one."""


class GroupNotEmptyError(ApiError, code=68):
    """The group still has members, so it cannot be deleted."""


class GroupIdNotFoundError(ApiError, code=69):
    """There is no group of this id."""


class FetchSessionIdNotFoundError(RetriableError, code=70):
    """The broker has dropped this fetch session; open a new one with a full fetch."""


class InvalidFetchSessionEpochError(RetriableError, code=71):
    """Client and broker disagree about the step of the fetch session; open a new one with a full fetch."""


class ListenerNotFoundError(InvalidMetadataError, code=72):
    """The leader is not reachable through a listener of the name this client came in by."""


class TopicDeletionDisabledError(ApiError, code=73):
    """The broker is configured with delete.topic.enable=false."""


class FencedLeaderEpochError(InvalidMetadataError, code=74):
    """The client's metadata knows an older leader epoch than the broker."""


class UnknownLeaderEpochError(RetriableError, code=75):
    """The client's metadata knows a newer leader epoch than the broker, which has yet to catch up."""


class UnsupportedCompressionTypeError(ApiError, code=76):
    """A compression type this side cannot handle."""


class StaleBrokerEpochError(ApiError, code=77):
    """The request carries an epoch from before the broker registered again."""


class OffsetNotAvailableError(RetriableError, code=78):
    """A new leader is still finding out how far the log is committed, so it cannot name an end offset yet."""


class MemberIdRequiredError(ApiError, code=79):
    """The group has given out a member id; join once more with it."""


class PreferredLeaderNotAvailableError(InvalidMetadataError, code=80):
    """The first replica in the assignment is not in a state to lead the partition."""


class GroupMaxSizeReachedError(ApiError, code=81):
    """The group has as many members as the broker permits."""


class FencedInstanceIdError(ApplicationRecoverableError, code=82):
    """Another consumer has taken over this group.instance.id."""


class EligibleLeadersNotAvailableError(InvalidMetadataError, code=83):
    """No replica that may lead the partition is alive."""


class ElectionNotNeededError(InvalidMetadataError, code=84):
    """The leader that the election would bring in leads already."""


class NoReassignmentInProgressError(ApiError, code=85):
    """The partition is not being moved, so there is nothing to cancel."""


class GroupSubscribedToTopicError(ApiError, code=86):
    """Offsets of a topic cannot be deleted while members of the group read it."""


class InvalidRecordError(InvalidConfigurationError, code=87):
    """A record batch that is intact but breaks a rule of the format."""


class UnstableOffsetCommitError(RetriableError, code=88):
    """Offsets committed in a transaction that is still open stand in the way of a stable answer."""


class ThrottlingQuotaExceededError(RetriableError, code=89):
    """A quota is used up; the operation may be tried again after the throttle time."""

    def __init__(self, message: str | None = None, *, throttle_time_ms: int = 0) -> None:
        super().__init__(message)
        self.throttle_time_ms = throttle_time_ms


class ProducerFencedError(ApplicationRecoverableError, code=90):
    """Another producer has started with the same transactional id, which shuts this one out for good."""


class ResourceNotFoundError(ApiError, code=91):
    """The request refers to something that does not exist."""

    def __init__(self, message: str | None = None, *, resource: str | None = None) -> None:
        super().__init__(message)
        self.resource = resource


class DuplicateResourceError(ApiError, code=92):
    """The request names the same thing more than once."""

    def __init__(self, message: str | None = None, *, resource: str | None = None) -> None:
        super().__init__(message)
        self.resource = resource


class UnacceptableCredentialError(ApiError, code=93):
    """The credential is too weak or malformed, for instance with too few SCRAM iterations."""


class InconsistentVoterSetError(ApiError, code=94):
    """Sender and receiver do not agree on who votes in the quorum."""


class InvalidUpdateVersionError(ApiError, code=95):
    """A feature cannot be moved to this level."""


class FeatureUpdateFailedError(ApiError, code=96):
    """The features could not be updated; the controller's log has the reason."""


class PrincipalDeserializationError(ApiError, code=97):
    """The principal inside a forwarded request could not be read; broker and controller are configured differently."""


class SnapshotNotFoundError(ApiError, code=98):
    """The quorum's leader does not have this snapshot any more."""


class PositionOutOfRangeError(ApiError, code=99):
    """A snapshot was asked for bytes before its start or beyond its end."""


class UnknownTopicIdError(InvalidMetadataError, code=100):
    """This broker does not know a topic with this id; it may be deleted, or the metadata may be old."""


class DuplicateBrokerRegistrationError(ApiError, code=101):
    """A running broker has this node id already."""


class BrokerIdNotRegisteredError(ApiError, code=102):
    """No broker of this id is registered with the controller."""


class InconsistentTopicIdError(InvalidMetadataError, code=103):
    """The topic id of the request and the one in the log differ: the topic was deleted and made anew."""


class InconsistentClusterIdError(ApiError, code=104):
    """The request is meant for a cluster of another id."""


class TransactionalIdNotFoundError(ApiError, code=105):
    """The coordinator has no state for this transactional id."""


class FetchSessionTopicIdError(RetriableError, code=106):
    """One fetch session mixes topic names and topic ids."""


class IneligibleReplicaError(ApiError, code=107):
    """A replica that is fenced or shutting down cannot be taken into the in-sync set."""


class NewLeaderElectedError(ApiError, code=108):
    """The change was made, and with it the partition got another leader."""


class OffsetMovedToTieredStorageError(ApiError, code=109):
    """The leader keeps this offset in remote storage only; a follower has to start further on."""


class FencedMemberEpochError(ApiError, code=110):
    """The coordinator has ended this member's epoch; it has to give up its partitions and join again."""


class UnreleasedInstanceIdError(ApiError, code=111):
    """Another member of the group still holds this instance id."""


class UnsupportedAssignorError(ApiError, code=112):
    """The group coordinator does not offer this assignor."""


class StaleMemberEpochError(ApiError, code=113):
    """The member's epoch has moved on; the next heartbeat tells the new one."""


class MismatchedEndpointTypeError(ApiError, code=114):
    """A request for brokers reached a controller, or the other way round."""


class UnsupportedEndpointTypeError(ApiError, code=115):
    """Endpoints of this type are not implemented."""


class UnknownControllerIdError(ApiError, code=116):
    """No controller has this id."""


class UnknownSubscriptionIdError(ApiError, code=117):
    """The metrics were pushed for a telemetry subscription that has changed; fetch the current one."""


class TelemetryTooLargeError(ApiError, code=118):
    """The pushed metrics take up more bytes than the broker accepts."""


class InvalidRegistrationError(ApiError, code=119):
    """The controller finds a contradiction in what the broker says about itself."""


class TransactionAbortableError(ApiError, code=120):
    """This transaction can only be aborted; afterwards the producer may go on."""


class InvalidRecordStateError(ApiError, code=121):
    """The share group's member cannot acknowledge the record: it is not, or no longer, the one who acquired it."""


class ShareSessionNotFoundError(RetriableError, code=122):
    """The broker has dropped this share session; open a new one."""


class InvalidShareSessionEpochError(RetriableError, code=123):
    """Client and broker disagree about the step of the share session; open a new one."""


class FencedStateEpochError(ApiError, code=124):
    """The share group's state has been written under a newer epoch."""


class InvalidVoterKeyError(ApiError, code=125):
    """The node id fits but the directory id does not: the voter has another disk than expected."""


class DuplicateVoterError(ApiError, code=126):
    """The node votes in the quorum already."""


class VoterNotFoundError(ApiError, code=127):
    """The node does not vote in the quorum."""


class InvalidRegularExpressionError(ApiError, code=128):
    """The subscription's regular expression does not compile."""


class RebootstrapRequiredError(ApiError, code=129):
    """What the client knows of the cluster is of no use; it has to start over from its bootstrap servers."""


class StreamsInvalidTopologyError(ApiError, code=130):
    """The streams topology contradicts itself or the topics there are."""


class StreamsInvalidTopologyEpochError(ApiError, code=131):
    """The epoch of the streams topology is not one that can be."""


class StreamsTopologyFencedError(ApiError, code=132):
    """The group has a streams topology with a newer epoch."""


class ShareSessionLimitReachedError(RetriableError, code=133):
    """The broker keeps as many share sessions as it may."""


class GroupDeletionFailedError(ApiError, code=134):
    """The group could not be deleted; the message beside it says why."""


class StreamsTopologyDescriptionUpdateFailedError(ApiError, code=135):
    """The description of a streams topology could not be stored."""


class ControllerIdNotRegisteredError(ApiError, code=136):
    """No controller of this id is registered."""
