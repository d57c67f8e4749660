"""The features part of an image: finalized levels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas.common.dataclass import dataclass, field
from barnabas.metadata import metadata_version as metadata_versions
from barnabas.metadata.errors import UnwritableMetadataError
from barnabas.metadata.feature_versions import ELR_VERSION, KRAFT_VERSION
from barnabas.metadata.map_delta import MapDelta
from barnabas.metadata.metadata_version import MetadataVersion
from barnabas.metadata.persistent_map import PersistentMap
from barnabas.protocol.internal.metadata import FeatureLevelRecord

if TYPE_CHECKING:
    from barnabas.metadata.writer import ImageWriter, ImageWriterOptions


@dataclass(frozen=True, slots=True)
class FeaturesImage:
    """``metadata.version``, and the features with a level other than 0."""

    metadata_version: MetadataVersion | None = None
    """None before the first record of the log, which sets it."""
    finalized: PersistentMap[str, int] = field(default_factory=PersistentMap)
    """The others by name; never ``metadata.version``, nor ``kraft.version``, which Raft manages."""

    def __bool__(self) -> bool:
        return self.metadata_version is not None or bool(self.finalized)

    def level(self, name: str) -> int:
        if name == metadata_versions.FEATURE_NAME:
            return 0 if self.metadata_version is None else self.metadata_version.value
        return self.finalized.get(name, 0)

    @property
    def is_elr_enabled(self) -> bool:
        return self.level(ELR_VERSION.name) >= 1

    def write(self, writer: ImageWriter, options: ImageWriterOptions) -> None:
        """Writes these records first, because ``metadata.version`` determines how to read the others."""
        writer.write(
            FeatureLevelRecord(name=metadata_versions.FEATURE_NAME, feature_level=options.metadata_version.value)
        )
        for name, level in sorted(self.finalized.items()):
            writer.write(FeatureLevelRecord(name=name, feature_level=level))

    def metadata_version_or_raise(self) -> MetadataVersion:
        if self.metadata_version is None:
            raise UnwritableMetadataError("the image has no metadata.version yet")
        return self.metadata_version


class FeaturesDelta:
    """Changed levels."""

    def __init__(self, image: FeaturesImage) -> None:
        self.image = image
        self._finalized = MapDelta(image.finalized)
        self.metadata_version_change: MetadataVersion | None = None

    @classmethod
    def of_everything(cls, image: FeaturesImage) -> FeaturesDelta:
        delta = cls(FeaturesImage())
        delta._finalized = MapDelta.of_everything(image.finalized)
        delta.metadata_version_change = image.metadata_version
        return delta

    @property
    def changes(self) -> Mapping[str, int | None]:
        """The new level by feature, None for a disabled one; without ``metadata.version``."""
        return self._finalized.changes

    def replay(self, record: FeatureLevelRecord) -> None:
        if record.name == metadata_versions.FEATURE_NAME:
            self.metadata_version_change = MetadataVersion.for_level(record.feature_level)
        elif record.name == KRAFT_VERSION.name:
            # Some logs have one by mistake (KAFKA-18979). The actual level is in a control record.
            return
        elif record.feature_level == 0:
            self._finalized.remove(record.name)
        else:
            self._finalized.put(record.name, record.feature_level)

    def __bool__(self) -> bool:
        return self.metadata_version_change is not None or bool(self._finalized)

    def finish_snapshot(self) -> None:
        self._finalized.finish_snapshot()
        if self.metadata_version_change is self.image.metadata_version:
            self.metadata_version_change = None

    def apply(self) -> FeaturesImage:
        if not self:
            return self.image
        return FeaturesImage(self.metadata_version_change or self.image.metadata_version, self._finalized.apply())
