"""The error table: codes, names, the exceptions behind them, and the way from one to the other."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from barnabas.common import errors, exceptions
from barnabas.common.errors import (
    ApiError,
    ApplicationRecoverableError,
    AuthenticationError,
    AuthorizationError,
    BarnabasError,
    CorruptRecordError,
    DuplicateResourceError,
    Errors,
    GroupAuthorizationError,
    InvalidConfigurationError,
    InvalidMetadataError,
    InvalidRecordError,
    InvalidRequestError,
    InvalidTopicError,
    KafkaStorageError,
    KafkaTimeoutError,
    OutOfOrderSequenceError,
    ProtocolError,
    RecordTooLargeError,
    RefreshRetriableError,
    ResourceNotFoundError,
    RetriableError,
    ThrottlingQuotaExceededError,
    TopicAuthorizationError,
    UnknownMemberIdError,
    UnknownProducerIdError,
    UnknownServerError,
    UnsupportedCompressionTypeError,
    UnsupportedVersionError,
    raise_for_code,
)
from oracles.java import JavaOracle

FAILURES = [error for error in Errors if error is not Errors.NONE]


def python_name(java_class: str) -> str:
    """What our class for one of Java's is called."""
    if java_class == "TimeoutException":
        return "KafkaTimeoutError"  # the plain name would hide Python's own
    return java_class.removesuffix("Exception") + "Error"


class TestTable:
    def test_codes_are_those_of_the_protocol(self) -> None:
        assert [error.value for error in Errors] == list(range(-1, 137))
        assert Errors.UNKNOWN_SERVER_ERROR.value == -1
        assert Errors.NONE.value == 0
        assert Errors.NOT_LEADER_OR_FOLLOWER.value == 6
        assert Errors.INVALID_CONFIG.value == 40
        assert Errors.CONTROLLER_ID_NOT_REGISTERED.value == 136

    @pytest.mark.parametrize("error", FAILURES, ids=lambda error: error.name)
    def test_each_code_has_one_class_of_its_own(self, error: Errors) -> None:
        kind = error.exception
        assert kind is not None
        assert kind.code == error
        assert Errors.for_exception(kind()) is error
        assert error.retriable is kind.retriable is issubclass(kind, RetriableError)
        assert isinstance(error.to_exception("why"), kind)
        assert str(error.to_exception("why")) == "why"

    def test_no_class_serves_two_codes(self) -> None:
        assert len({error.exception for error in FAILURES}) == len(FAILURES)

    @pytest.mark.parametrize("error", list(Errors), ids=lambda error: error.name)
    def test_each_message_is_one_sentence_of_its_own(self, error: Errors) -> None:
        assert error.message.endswith(".")
        assert error.message[0].isupper()
        assert "\n" not in error.message
        if error.exception is not None:
            assert error.exception.__doc__ == error.message
            assert str(error.exception()) == str(error.to_exception()) == error.message
        assert [other for other in Errors if other.message == error.message] == [error]

    def test_none_is_no_failure(self) -> None:
        assert Errors.NONE.exception is None
        assert Errors.NONE.to_exception() is None
        assert not Errors.NONE.retriable

    def test_every_exception_can_be_imported_beside_the_table(self) -> None:
        for error in FAILURES:
            assert error.exception is not None
            assert getattr(errors, error.exception.__name__) is error.exception
        assert {name for name in vars(exceptions) if name.endswith("Error")} <= set(vars(errors))


class TestHierarchy:
    def test_bases(self) -> None:
        assert ApiError.__bases__ == (BarnabasError,)
        assert InvalidMetadataError.__bases__ == (RefreshRetriableError,)
        assert RefreshRetriableError.__bases__ == (RetriableError,)
        assert UnknownProducerIdError.__bases__ == (OutOfOrderSequenceError,)
        assert UnknownMemberIdError.__bases__ == (ApplicationRecoverableError,)
        assert issubclass(AuthenticationError, InvalidConfigurationError)
        assert issubclass(KafkaStorageError, InvalidMetadataError)
        assert issubclass(InvalidRecordError, InvalidConfigurationError)
        assert not issubclass(ProtocolError, ApiError)

    def test_a_timeout_is_also_pythons(self) -> None:
        with pytest.raises(TimeoutError, match="too slow"):
            raise_for_code(Errors.REQUEST_TIMED_OUT, "too slow")
        assert issubclass(KafkaTimeoutError, RetriableError)

    def test_a_code_cannot_be_taken_twice(self) -> None:
        with pytest.raises(TypeError, match="CorruptRecordError have the same error code 2"):
            type("AnotherCorruptRecordError", (ApiError,), {}, code=2)
        assert Errors.CORRUPT_MESSAGE.exception is CorruptRecordError


class TestForCode:
    @pytest.mark.parametrize("error", list(Errors), ids=lambda error: error.name)
    def test_known(self, error: Errors) -> None:
        assert Errors.for_code(int(error)) is error

    @pytest.mark.parametrize("code", [-2, 137, 32767, -32768])
    def test_unknown(self, code: int) -> None:
        assert Errors.for_code(code) is Errors.UNKNOWN_SERVER_ERROR

    def test_raise(self) -> None:
        raise_for_code(0)
        raise_for_code(0, "a message beside no error")
        with pytest.raises(UnsupportedVersionError) as caught:
            raise_for_code(35)
        assert str(caught.value) == Errors.UNSUPPORTED_VERSION.message
        with pytest.raises(UnsupportedCompressionTypeError, match="no zstd here"):
            raise_for_code(76, "no zstd here")
        with pytest.raises(UnknownServerError, match="error code 999"):
            raise_for_code(999)
        with pytest.raises(UnknownServerError) as caught_plain:
            raise_for_code(-1)
        assert str(caught_plain.value) == Errors.UNKNOWN_SERVER_ERROR.message


class TestForException:
    def test_nearest_base_wins(self) -> None:
        class LostHeartbeatError(UnknownMemberIdError):
            """A refinement without a code of its own."""

        assert LostHeartbeatError.code == 25
        assert Errors.for_exception(LostHeartbeatError()) is Errors.UNKNOWN_MEMBER_ID
        assert Errors.for_exception(UnknownProducerIdError()) is Errors.UNKNOWN_PRODUCER_ID

    @pytest.mark.parametrize(
        ("error", "expected"),
        [
            (ApiError(), Errors.UNKNOWN_SERVER_ERROR),
            (RetriableError(), Errors.UNKNOWN_SERVER_ERROR),
            (AuthorizationError(), Errors.INVALID_CONFIG),
            (ProtocolError("array of 9 at byte 4"), Errors.INVALID_REQUEST),
            (InvalidRequestError(), Errors.INVALID_REQUEST),
            (TimeoutError(), Errors.REQUEST_TIMED_OUT),
            (KafkaTimeoutError(), Errors.REQUEST_TIMED_OUT),
            (OSError("disk"), Errors.UNKNOWN_SERVER_ERROR),
            (BarnabasError(), Errors.UNKNOWN_SERVER_ERROR),
            (KeyboardInterrupt(), Errors.UNKNOWN_SERVER_ERROR),
        ],
        ids=lambda value: value.name if isinstance(value, Errors) else type(value).__name__,
    )
    def test_what_has_no_code_of_its_own(self, error: BaseException, expected: Errors) -> None:
        assert Errors.for_exception(error) is expected


class TestDetails:
    def test_defaults(self) -> None:
        assert TopicAuthorizationError().unauthorized_topics == frozenset()
        assert GroupAuthorizationError().group_id is None
        assert InvalidTopicError().invalid_topics == frozenset()
        assert RecordTooLargeError().record_too_large_partitions == {}
        assert ThrottlingQuotaExceededError().throttle_time_ms == 0
        assert ResourceNotFoundError().resource is DuplicateResourceError().resource is None

    @pytest.mark.parametrize(
        ("error", "attribute", "value"),
        [
            (TopicAuthorizationError("m", unauthorized_topics=["a", "b"]), "unauthorized_topics", {"a", "b"}),
            (GroupAuthorizationError("m", group_id="g"), "group_id", "g"),
            (InvalidTopicError("m", invalid_topics=["a b"]), "invalid_topics", {"a b"}),
            (
                RecordTooLargeError("m", record_too_large_partitions={("t", 0): 9}),
                "record_too_large_partitions",
                {("t", 0): 9},
            ),
            (ThrottlingQuotaExceededError("m", throttle_time_ms=50), "throttle_time_ms", 50),
            (ResourceNotFoundError("m", resource="r"), "resource", "r"),
            (DuplicateResourceError("m", resource="r"), "resource", "r"),
        ],
        ids=lambda value: type(value).__name__ if isinstance(value, ApiError) else "",
    )
    def test_details_survive_a_trip_to_another_process(self, error: ApiError, attribute: str, value: object) -> None:
        for copy in (error, pickle.loads(pickle.dumps(error))):
            assert type(copy) is type(error)
            assert str(copy) == "m"
            assert getattr(copy, attribute) == value


def test_messages_do_not_depend_on_docstrings() -> None:
    program = "from barnabas.common.errors import *; print(InvalidRecordError(), Errors.INVALID_RECORD.message)"
    run = subprocess.run([sys.executable, "-OO", "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "InvalidRecordError InvalidRecordError\n"


@pytest.mark.java
def test_the_table_is_javas(java_oracle: JavaOracle) -> None:
    java = java_oracle.errors()
    assert [(error["code"], error["name"], error["retriable"]) for error in java] == [
        (error.value, error.name, error.retriable) for error in Errors
    ]
    for row in java:
        kind = Errors.for_code(row["code"]).exception
        if row["exception"] is None:
            assert kind is None
            continue
        assert kind is not None
        chain = [row["exception"], *row["superclasses"]]
        up_to_api_error = chain[: chain.index("ApiException") + 1]
        ours = [base.__name__ for base in kind.__mro__ if issubclass(base, ApiError)]
        assert ours == list(map(python_name, up_to_api_error))
