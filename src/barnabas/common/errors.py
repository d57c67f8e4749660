"""Kafka's error codes and the exceptions that carry them."""

from __future__ import annotations


class BarnabasError(Exception):
    """The root of everything this package raises on purpose."""


class ProtocolError(BarnabasError):
    """Bytes that the protocol does not allow; the message says what was wrong and where."""


class ApiError(BarnabasError):
    """An error that has a code on the wire."""

    code: int = -1
    retriable: bool = False


class CorruptRecordError(ApiError):
    """A record batch that is damaged: bad checksum, broken lengths, lying counts."""

    code = 2
    retriable = True


class InvalidRecordError(ApiError):
    """A record batch that is intact but breaks a rule of the format."""

    code = 87


class UnsupportedCompressionTypeError(ApiError):
    """A compression type this side cannot handle."""

    code = 76


class UnsupportedVersionError(ApiError):
    """A version, or a field in a version, that is not supported."""

    code = 35
