"""Metrics of the loader, with Kafka's names."""

from __future__ import annotations

from functools import partial

from barnabas.metadata import metadata_version
from barnabas.metadata.features import FeaturesImage
from barnabas.metrics.yammer.registry import KafkaMetricsGroup, MetricsRegistry


class MetadataLoaderMetrics:
    """``kafka.server:type=MetadataLoader``: the metadata version, the active controller, snapshots, feature levels.

    The loader's thread writes them; a gauge reads the latest value.
    """

    def __init__(self, registry: MetricsRegistry | None = None) -> None:
        self._group = KafkaMetricsGroup(registry or MetricsRegistry(), "kafka.server", "MetadataLoader")
        self.snapshots_loaded = 0
        self.current_controller_id = -1
        self.faults = 0
        """The number of records that could not be replayed, deltas that could not be applied, and failed publishers."""
        self._levels: dict[str, int] = {}
        self._group.new_gauge("CurrentMetadataVersion", lambda: self.level(metadata_version.FEATURE_NAME))
        self._group.new_gauge("HandleLoadSnapshotCount", lambda: self.snapshots_loaded)
        self._group.new_gauge("CurrentControllerId", lambda: self.current_controller_id)

    def level(self, feature: str) -> int:
        return self._levels.get(feature, 0)

    def record_features(self, features: FeaturesImage) -> None:
        levels = {name: features.level(name) for name in (metadata_version.FEATURE_NAME, *features.finalized)}
        before, self._levels = self._levels, levels
        for name in levels.keys() - before.keys():
            self._group.new_gauge("FinalizedLevel", partial(self.level, name), _tags(name))
        for name in before.keys() - levels.keys():
            self._group.remove_metric("FinalizedLevel", _tags(name))

    def close(self) -> None:
        for name in ("CurrentMetadataVersion", "HandleLoadSnapshotCount", "CurrentControllerId"):
            self._group.remove_metric(name)
        for feature in self._levels:
            self._group.remove_metric("FinalizedLevel", _tags(feature))


def _tags(feature: str) -> dict[str, str]:
    """Converts the name of a feature: ``group.version`` becomes ``groupVersion``, because metric names have no dots."""
    first, *others = feature.split(".")
    return {"featureName": first + "".join(word.capitalize() for word in others)}
