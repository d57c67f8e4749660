"""IDs of log directories: identify the disk on which a broker keeps a replica (KIP-858).

A broker with several log directories gives each an ID, stored in its ``meta.properties``. A partition has the directory
of each replica, so that the controller knows what a failed disk takes offline while the broker stays up. The first
hundred IDs are reserved; three of them mean a state instead of a directory.
"""

from __future__ import annotations

from collections.abc import Collection

from barnabas.common.identifiers import Uuid, random_uuid

MIGRATING = Uuid(bytes(16))
"""In an unknown directory: the partition is older than KIP-858."""

UNASSIGNED = Uuid(bytes(15) + b"\x01")
"""Not assigned yet: the broker chooses, and reports."""

LOST = Uuid(bytes(15) + b"\x02")
"""In a failed directory."""

RESERVED = 100


def is_reserved(directory: Uuid) -> bool:
    return int.from_bytes(directory, "big") < RESERVED


def random_directory_id() -> Uuid:
    while is_reserved(directory := random_uuid()):
        pass
    return directory


def is_online(directory: Uuid, online: Collection[Uuid]) -> bool:
    """Returns whether a broker with these ``online`` directories can serve a replica in this directory.

    A broker that has never reported its directories is trusted: it would have stopped if all of them had failed.
    """
    if directory in (MIGRATING, UNASSIGNED):
        return True
    if directory == LOST:
        return False
    return not online or directory in online
