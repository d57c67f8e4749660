"""Log directories by id: where on its disks a broker keeps a replica (KIP-858).

A broker with several log directories gives each an id, written into its ``meta.properties``. A partition names for each
replica the directory it lies in, so that the controller can tell what a broken disk takes offline while the broker
lives on. The first hundred ids are reserved; three of them stand for a state instead of a directory.
"""

from __future__ import annotations

from collections.abc import Collection

from barnabas.common.identifiers import Uuid, random_uuid

MIGRATING = Uuid(bytes(16))
"""Placed in some directory, but nobody has told which: the partition is older than KIP-858."""

UNASSIGNED = Uuid(bytes(15) + b"\x01")
"""Not placed yet: the broker chooses, and reports."""

LOST = Uuid(bytes(15) + b"\x02")
"""In a directory that has failed."""

RESERVED = 100


def is_reserved(directory: Uuid) -> bool:
    return int.from_bytes(directory, "big") < RESERVED


def random_directory_id() -> Uuid:
    while is_reserved(directory := random_uuid()):
        pass
    return directory


def is_online(directory: Uuid, online: Collection[Uuid]) -> bool:
    """Whether a replica in this directory can be served by a broker whose working directories are ``online``.

    A broker that has never listed its directories is trusted: it would have stopped if all of them had failed.
    """
    if directory in (MIGRATING, UNASSIGNED):
        return True
    if directory == LOST:
        return False
    return not online or directory in online
