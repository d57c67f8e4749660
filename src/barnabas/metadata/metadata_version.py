"""``metadata.version``: the records and their versions that nodes may write to the metadata log."""

from __future__ import annotations

from enum import IntEnum

from barnabas.metadata.errors import MetadataReplayError


class MetadataVersion(IntEnum):
    """A level of the feature ``metadata.version``, with Kafka's name: release 3.7, third internal version of it.

    All nodes must be able to read what one of them writes. So during an upgrade all nodes write in the format of the
    old release, until an administrator raises this level. It is itself a record, the first in the log, and determines
    the format of the following ones.

    >>> MetadataVersion.IBP_4_0_IV1.release, MetadataVersion.IBP_4_0_IV1.partition_record_version
    ('4.0-IV1', 2)
    >>> MetadataVersion.IBP_3_7_IV2 <= MetadataVersion.for_release("3.8")
    True

    Some levels change only the communication between brokers, not the records. A cluster can be downgraded over those,
    but not over a level with :attr:`changes_metadata`.
    """

    IBP_3_3_IV3 = 7
    """Controlled shutdown is in the registration. The oldest level that Kafka 4 supports."""
    IBP_3_4_IV0 = 8
    """Migration from ZooKeeper."""
    IBP_3_5_IV0 = 9
    IBP_3_5_IV1 = 10
    IBP_3_5_IV2 = 11
    """SCRAM credentials."""
    IBP_3_6_IV0 = 12
    """Shrinking the ISR no longer increases the leader epoch."""
    IBP_3_6_IV1 = 13
    """Transactions of metadata records (KIP-868)."""
    IBP_3_6_IV2 = 14
    """Delegation tokens."""
    IBP_3_7_IV0 = 15
    """Controllers register (KIP-919)."""
    IBP_3_7_IV1 = 16
    IBP_3_7_IV2 = 17
    """Log directories of replicas (KIP-858)."""
    IBP_3_7_IV3 = 18
    IBP_3_7_IV4 = 19
    IBP_3_8_IV0 = 20
    IBP_3_9_IV0 = 21
    """Dynamic voters (KIP-853)."""
    IBP_4_0_IV0 = 22
    IBP_4_0_IV1 = 23
    """Eligible leader replicas (KIP-966)."""
    IBP_4_0_IV2 = 24
    IBP_4_0_IV3 = 25
    IBP_4_1_IV0 = 26
    IBP_4_1_IV1 = 27
    IBP_4_2_IV0 = 28
    IBP_4_2_IV1 = 29
    IBP_4_3_IV0 = 30
    """Cordoned log directories (KIP-1066)."""

    @classmethod
    def for_level(cls, level: int) -> MetadataVersion:
        found = _BY_LEVEL.get(level)
        if found is None:
            raise MetadataReplayError(
                f"metadata.version {level} is unknown: this version supports levels {MINIMUM_VERSION.value} "
                f"({MINIMUM_VERSION.release}) to {LATEST_VERSION.value} ({LATEST_VERSION.release})"
            )
        return found

    @classmethod
    def for_release(cls, text: str) -> MetadataVersion:
        """Returns the level of ``3.7-IV2``; for a release such as ``3.7`` or ``3.7.1`` its highest level."""
        release, dash, internal = text.partition("-")
        short = ".".join(release.split(".")[:2])
        wanted = f"{short}-{internal}" if dash else f"{short}-"
        for version in reversed(cls):
            if version.release == wanted or (not dash and version.release.startswith(wanted)):
                return version
        raise ValueError(
            f"invalid metadata version {text!r}: use a release from {MINIMUM_VERSION.short_release} to "
            f"{LATEST_VERSION.short_release}, or an internal version such as {LATEST_VERSION.release}"
        )

    @property
    def release(self) -> str:
        """``4.0-IV1``."""
        _, major, minor, internal = self.name.split("_")
        return f"{major}.{minor}-{internal}"

    @property
    def short_release(self) -> str:
        """``4.0``."""
        return self.release.partition("-")[0]

    @property
    def changes_metadata(self) -> bool:
        """Whether this level has records, or fields of records, that the previous level does not know."""
        return self in _CHANGES

    def can_be_reached_by_downgrade_from(self, higher: MetadataVersion) -> bool:
        """Returns whether a downgrade from ``higher`` loses nothing."""
        return not any(self < version <= higher for version in _CHANGES)

    # -- supported records

    @property
    def supports_scram(self) -> bool:
        return self >= MetadataVersion.IBP_3_5_IV2

    @property
    def supports_transactions(self) -> bool:
        return self >= MetadataVersion.IBP_3_6_IV1

    @property
    def supports_delegation_tokens(self) -> bool:
        return self >= MetadataVersion.IBP_3_6_IV2

    @property
    def supports_controller_registration(self) -> bool:
        return self >= MetadataVersion.IBP_3_7_IV0

    @property
    def supports_migration(self) -> bool:
        return self >= MetadataVersion.IBP_3_4_IV0

    @property
    def supports_directories(self) -> bool:
        return self >= MetadataVersion.IBP_3_7_IV2

    @property
    def supports_elr(self) -> bool:
        return self >= MetadataVersion.IBP_4_0_IV1

    @property
    def supports_cordoned_directories(self) -> bool:
        return self >= MetadataVersion.IBP_4_3_IV0

    @property
    def raises_leader_epoch_on_isr_shrink(self) -> bool:
        """Whether the controller must increase the leader epoch when a replica leaves the ISR."""
        return self < MetadataVersion.IBP_3_6_IV0

    @property
    def register_broker_record_version(self) -> int:
        if self.supports_cordoned_directories:
            return 4
        if self.supports_directories:
            return 3
        return 2 if self.supports_migration else 1

    @property
    def broker_registration_change_record_version(self) -> int:
        if self.supports_cordoned_directories:
            return 3
        return 2 if self.supports_directories else 1

    @property
    def partition_record_version(self) -> int:
        if self.supports_elr:
            return 2
        return 1 if self.supports_directories else 0

    @property
    def partition_change_record_version(self) -> int:
        return self.partition_record_version


FEATURE_NAME = "metadata.version"
MINIMUM_VERSION = MetadataVersion.IBP_3_3_IV3
LATEST_VERSION = MetadataVersion.IBP_4_3_IV0

_BY_LEVEL = {version.value: version for version in MetadataVersion}
_CHANGES = frozenset(
    {
        MetadataVersion.IBP_3_3_IV3,
        MetadataVersion.IBP_3_4_IV0,
        MetadataVersion.IBP_3_5_IV2,
        MetadataVersion.IBP_3_6_IV1,
        MetadataVersion.IBP_3_6_IV2,
        MetadataVersion.IBP_3_7_IV0,
        MetadataVersion.IBP_3_7_IV2,
        MetadataVersion.IBP_4_0_IV1,
        MetadataVersion.IBP_4_3_IV0,
    }
)
