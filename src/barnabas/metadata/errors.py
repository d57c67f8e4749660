"""What can go wrong with metadata."""

from __future__ import annotations

from barnabas.common.errors import BarnabasError


class MetadataReplayError(BarnabasError):
    """A record that does not fit the image it is applied to, such as a change to a partition that does not exist.

    A correct log never has one. Whoever replays decides how bad it is: a broker that cannot follow the log must not
    serve, a standby controller reports it and goes on.
    """


class UnwritableMetadataError(BarnabasError):
    """Part of an image has no form in the records of the metadata version it is to be written for."""
