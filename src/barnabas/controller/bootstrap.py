"""The first records of a new cluster, and the first records of a new leader."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from barnabas.common.dataclass import dataclass
from barnabas.controller.config_schema import MIN_IN_SYNC_REPLICAS
from barnabas.controller.offset_control_manager import NO_OFFSET
from barnabas.controller.result import ControllerResult
from barnabas.metadata.configs import ConfigResourceType
from barnabas.metadata.feature_versions import ELR_VERSION, FEATURES, KRAFT_VERSION
from barnabas.metadata.metadata_version import FEATURE_NAME, LATEST_VERSION, MetadataVersion
from barnabas.protocol.internal.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)
from barnabas.raft.client import ApiMessageAndVersion

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BootstrapMetadata:
    """The first records in the log of a new cluster: the level of ``metadata.version``, then those of other features.

    Formatting a data directory determines them. They can include credentials, with which the brokers log in when the
    cluster starts for the first time.
    """

    records: tuple[ApiMessageAndVersion, ...]
    source: str

    def __post_init__(self) -> None:
        if not any(_is_level_of(FEATURE_NAME, record) for record in self.records):
            raise ValueError(f"bootstrap metadata from {self.source} must set {FEATURE_NAME}")

    @classmethod
    def for_version(
        cls,
        version: MetadataVersion = LATEST_VERSION,
        source: str = "the built-in default",
        *,
        levels: Mapping[str, int] | None = None,
        extra: Sequence[ApiMessageAndVersion] = (),
    ) -> BootstrapMetadata:
        """Creates the records of the features that belong to a metadata version, overridden by `levels`."""
        chosen = {name: feature.default_level(version) for name, feature in FEATURES.items()}
        chosen |= levels or {}
        chosen.pop(KRAFT_VERSION.name, None)  # Raft stores it in a control record
        records = [_level(FEATURE_NAME, version.value)]
        records += [_level(name, level) for name, level in sorted(chosen.items()) if level > 0]
        return cls((*records, *extra), source)

    @property
    def metadata_version(self) -> MetadataVersion:
        return MetadataVersion.for_level(self.level(FEATURE_NAME))

    def level(self, feature: str) -> int:
        level = 0
        for record in self.records:
            if _is_level_of(feature, record):
                assert isinstance(record.message, FeatureLevelRecord)
                level = record.message.feature_level
        return level


def _level(feature: str, level: int) -> ApiMessageAndVersion:
    return ApiMessageAndVersion(FeatureLevelRecord(name=feature, feature_level=level), 0)


def _is_level_of(feature: str, record: ApiMessageAndVersion) -> bool:
    return isinstance(record.message, FeatureLevelRecord) and record.message.name == feature


def activation_records(
    bootstrap: BootstrapMetadata,
    metadata_version: MetadataVersion | None,
    transaction_start_offset: int,
    static_min_insync_replicas: int,
) -> ControllerResult[None]:
    """Returns the records that a controller writes when it becomes active.

    On an empty log: the bootstrap records, in a transaction, so that readers see all of them or none. Otherwise: none,
    unless the previous controller died inside a transaction, which is then aborted.
    """
    records: list[ApiMessageAndVersion] = []
    version = bootstrap.metadata_version if metadata_version is None else metadata_version
    if transaction_start_offset != NO_OFFSET:
        if not version.supports_transactions:
            raise RuntimeError(
                f"the log has an unfinished transaction at {transaction_start_offset}, but metadata.version "
                f"{version.release} does not support transactions"
            )
        log.warning("Aborting the metadata transaction that began at offset %d", transaction_start_offset)
        records.append(ApiMessageAndVersion(AbortTransactionRecord(reason="Controller failover"), 0))
    if metadata_version is not None:
        return ControllerResult.atomic_of(records, None)
    log.info(
        "The metadata log is empty: writing %d bootstrap record(s) for metadata.version %s from %s",
        len(bootstrap.records),
        version.release,
        bootstrap.source,
    )
    contents = list(bootstrap.records)
    if bootstrap.level(ELR_VERSION.name) > 0:
        # Eligible leader replicas need a cluster-wide min.insync.replicas.
        value = ConfigRecord(
            resource_type=ConfigResourceType.BROKER,
            resource_name="",
            name=MIN_IN_SYNC_REPLICAS,
            value=str(static_min_insync_replicas),
        )
        contents.append(ApiMessageAndVersion(value, 0))
    if not version.supports_transactions:
        return ControllerResult.atomic_of([*records, *contents], None)
    records.append(ApiMessageAndVersion(BeginTransactionRecord(name="Bootstrap records"), 0))
    records += contents
    records.append(ApiMessageAndVersion(EndTransactionRecord(), 0))
    return ControllerResult.of(records, None)
