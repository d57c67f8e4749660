"""Finalized features of the cluster and their levels (KIP-584, KIP-1022)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

from barnabas.common.dataclass import dataclass
from barnabas.common.errors import ApiError, InvalidUpdateVersionError
from barnabas.common.log_safety import LimitedLogger
from barnabas.common.snapshot_registry import LATEST_EPOCH, SnapshotRegistry, TimelineHashMap, TimelineObject
from barnabas.controller.quorum_features import DISABLED, QuorumFeatures, reason_not_supported
from barnabas.controller.result import ControllerResult
from barnabas.metadata.errors import MetadataReplayError
from barnabas.metadata.feature_versions import ELR_VERSION, FEATURES, KRAFT_VERSION
from barnabas.metadata.metadata_version import FEATURE_NAME, LATEST_VERSION, MINIMUM_VERSION, MetadataVersion
from barnabas.protocol.internal.metadata import FeatureLevelRecord, NoOpRecord
from barnabas.protocol.versions import VersionRange
from barnabas.raft.client import ApiMessageAndVersion

if TYPE_CHECKING:
    from barnabas.protocol.messages.update_features import FeatureUpdateKey

log = LimitedLogger(logging.getLogger(__name__))


class UpgradeType(IntEnum):
    """The direction in which a level may change."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    """Lower the level, if nothing is lost."""
    UNSAFE_DOWNGRADE = 3
    """Lower the level, even if data is lost."""


@dataclass(frozen=True, slots=True)
class FinalizedControllerFeatures:
    """The finalized levels as of an offset of the metadata log, including ``metadata.version``."""

    levels: Mapping[str, int]
    epoch: int


class ClusterFeatureSupport(Protocol):
    """The feature ranges that the registered nodes support."""

    def broker_supported(self) -> Iterable[tuple[int, Mapping[str, VersionRange]]]: ...

    def controller_supported(self) -> Iterable[tuple[int, Mapping[str, VersionRange]]]: ...


class KRaftVersionAccessor(Protocol):
    """Access to ``kraft.version``, which Raft keeps in a control record instead of a metadata record."""

    @property
    def kraft_version(self) -> int: ...

    def upgrade_kraft_version(self, epoch: int, version: int, validate_only: bool) -> None: ...


class FeatureControlManager:
    """Holds the finalized levels, and the rules for changing them.

    A level can be set if every registered broker and every controller of the quorum supports it. A request with several
    features changes all of them or none.

    ``metadata.version`` is special: it determines the format of all other records. It cannot be lowered past a level
    that introduced new kinds of records, because the log may already contain them.
    """

    def __init__(
        self,
        registry: SnapshotRegistry,
        quorum_features: QuorumFeatures,
        cluster_support: ClusterFeatureSupport,
        kraft_version: KRaftVersionAccessor,
    ) -> None:
        self._quorum_features = quorum_features
        self._cluster_support = cluster_support
        self._kraft_version = kraft_version
        self._metadata_version: TimelineObject[MetadataVersion | None] = TimelineObject(registry, None)
        self._finalized: TimelineHashMap[str, int] = TimelineHashMap(registry)

    # -- levels in force

    def metadata_version_at(self, epoch: int) -> MetadataVersion | None:
        """Returns the version as of an offset; None if the log is empty there."""
        return self._metadata_version.get(epoch)

    @property
    def metadata_version(self) -> MetadataVersion:
        version = self._metadata_version.get()
        if version is None:
            raise RuntimeError("the metadata log is empty: no metadata.version has been set")
        return version

    @property
    def is_elr_enabled(self) -> bool:
        return (self._finalized.get(ELR_VERSION.name) or 0) >= 1

    def is_controller_id(self, node_id: int) -> bool:
        return self._quorum_features.is_controller_id(node_id)

    def finalized_features(self, epoch: int = LATEST_EPOCH) -> FinalizedControllerFeatures:
        levels = dict(self._finalized.items_at(epoch))
        version = self._metadata_version.get(epoch)
        if version is not None:
            levels[FEATURE_NAME] = version.value
        return FinalizedControllerFeatures(levels, epoch)

    # -- updates

    def update_features(
        self, updates: Iterable[FeatureUpdateKey], *, request_version: int, validate_only: bool, claimed_epoch: int
    ) -> ControllerResult[ApiError | None]:
        """Returns the records for all updates, or the error of the first that is refused.

        If a feature is updated more than once, the last update counts, as in Kafka.
        """
        records: list[ApiMessageAndVersion] = []
        wanted = {update.feature: update for update in updates}
        try:
            proposed = dict(self.finalized_features().levels)
            proposed |= {name: update.max_version_level for name, update in wanted.items()}
            for update in wanted.values():
                records += self._update(update, proposed, request_version, validate_only, claimed_epoch)
        except ApiError as error:
            log.info("Cannot update features: %s", error)
            return ControllerResult.of([], error)
        if validate_only:
            return ControllerResult.of([], None)
        return ControllerResult.atomic_of(records, None)

    def _update(
        self,
        update: FeatureUpdateKey,
        proposed: Mapping[str, int],
        request_version: int,
        validate_only: bool,
        claimed_epoch: int,
    ) -> list[ApiMessageAndVersion]:
        name, level = update.feature, update.max_version_level
        upgrade_type = self._upgrade_type(update, request_version)
        current = self._current_level(name)
        if level < 0:
            raise self._invalid(name, level, "A level must not be negative.")
        reason = self._reason_not_supported(name, level)
        if reason is not None:
            raise self._invalid(name, level, reason)
        if level < current and upgrade_type is UpgradeType.UPGRADE:
            raise self._invalid(
                name, level, f"The current level is {current}; use an upgrade type that allows a downgrade."
            )
        if level > current and upgrade_type is not UpgradeType.UPGRADE:
            raise self._invalid(name, level, f"The current level is {current}, so this is not a downgrade.")
        if name == FEATURE_NAME:
            self._check_metadata_version(level, upgrade_type)
        elif name == KRAFT_VERSION.name:
            return self._update_kraft_version(level, current, upgrade_type, validate_only, claimed_epoch)
        else:
            self._check_dependencies(name, level, proposed)
        return [ApiMessageAndVersion(FeatureLevelRecord(name=name, feature_level=level), 0)]

    def _upgrade_type(self, update: FeatureUpdateKey, request_version: int) -> UpgradeType:
        if request_version == 0:
            return UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE
        try:
            return UpgradeType(update.upgrade_type)
        except ValueError:
            raise self._invalid(
                update.feature, update.max_version_level, f"Unknown upgrade type {update.upgrade_type}."
            ) from None

    def _current_level(self, name: str) -> int:
        if name == FEATURE_NAME:
            return self.metadata_version.value
        if name == KRAFT_VERSION.name:
            return self._kraft_version.kraft_version
        return self._finalized.get(name) or 0

    def _reason_not_supported(self, name: str, level: int) -> str | None:
        own = self._quorum_features
        reason = reason_not_supported(f"Controller {own.node_id}", own.supported_range(name), level)
        if reason is not None:
            return reason
        for broker_id, supported in self._cluster_support.broker_supported():
            reason = reason_not_supported(f"Broker {broker_id}", supported.get(name, DISABLED), level)
            if reason is not None:
                return reason
        if not self.metadata_version.supports_controller_registration:
            return None
        registered = {own.node_id}
        for controller_id, supported in self._cluster_support.controller_supported():
            registered.add(controller_id)
            if controller_id != own.node_id:
                reason = reason_not_supported(f"Controller {controller_id}", supported.get(name, DISABLED), level)
                if reason is not None:
                    return reason
        for controller_id in own.quorum_node_ids:
            if controller_id not in registered:
                return f"Controller {controller_id} has not registered, so its supported levels are unknown."
        return None

    def _check_metadata_version(self, level: int, upgrade_type: UpgradeType) -> None:
        current = self.metadata_version
        try:
            wanted = MetadataVersion.for_level(level)
        except MetadataReplayError:
            raise self._invalid(
                FEATURE_NAME, level, f"The known levels are {MINIMUM_VERSION.value} to {LATEST_VERSION.value}."
            ) from None
        if wanted >= current:
            return
        if not wanted.can_be_reached_by_downgrade_from(current):
            if upgrade_type is UpgradeType.UNSAFE_DOWNGRADE:
                raise self._invalid(FEATURE_NAME, level, "Unsafe downgrades are not supported.")
            raise self._invalid(
                FEATURE_NAME,
                level,
                f"A downgrade from {current.value} could lose metadata that {level} cannot express.",
            )

    def _check_dependencies(self, name: str, level: int, proposed: Mapping[str, int]) -> None:
        feature = FEATURES.get(name)
        if feature is None:
            raise self._invalid(name, level, "The feature is unknown.")
        try:
            missing = feature.missing(level, proposed)
        except ValueError as error:
            raise self._invalid(name, level, str(error)) from None
        if missing:
            needs = ", ".join(f"{needed} {least}" for needed, least in missing.items())
            raise self._invalid(name, level, f"It requires {needs}.")

    def _update_kraft_version(
        self, level: int, current: int, upgrade_type: UpgradeType, validate_only: bool, claimed_epoch: int
    ) -> list[ApiMessageAndVersion]:
        if upgrade_type is not UpgradeType.UPGRADE:
            if level == current:
                return []
            raise self._invalid(KRAFT_VERSION.name, level, "This feature cannot be downgraded.")
        self._kraft_version.upgrade_kraft_version(claimed_epoch, level, validate_only)
        # Raft makes the change. This record only provides an offset to wait for.
        return [ApiMessageAndVersion(NoOpRecord(), 0)]

    def _invalid(self, name: str, level: int, why: str) -> InvalidUpdateVersionError:
        return InvalidUpdateVersionError(f"Feature {name} cannot be set to level {level}. {why}")

    # -- replay

    def replay(self, record: FeatureLevelRecord) -> None:
        supported = self._quorum_features.supported_range(record.name)
        if record.feature_level not in supported:
            raise MetadataReplayError(
                f"{record.name} is set to level {record.feature_level}, but this controller supports {supported}"
            )
        if record.name == FEATURE_NAME:
            version = MetadataVersion.for_level(record.feature_level)
            self._metadata_version.set(version)
            log.info("metadata.version set to %d (%s)", version.value, version.release)
        elif record.name == KRAFT_VERSION.name:
            log.debug("Ignoring a FeatureLevelRecord of kraft.version, which belongs to Raft (KAFKA-18979)")
        elif record.feature_level == 0:
            self._finalized.pop(record.name)
            log.info("Feature %s disabled", record.name)
        else:
            self._finalized[record.name] = record.feature_level
            log.info("Feature %s set to level %d", record.name, record.feature_level)
