"""Errors of metadata."""

from __future__ import annotations

from barnabas.common.errors import BarnabasError


class MetadataReplayError(BarnabasError):
    """A record does not fit the image it is applied to, such as a change of a partition that does not exist.

    A correct log never has one. The caller decides how severe it is: a broker that cannot follow the log must not
    serve, a standby controller reports it and continues.
    """


class UnwritableMetadataError(BarnabasError):
    """A part of an image cannot be expressed in the records of the requested metadata version."""
