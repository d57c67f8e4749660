"""Changes of an image that are not applied yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.metadata.acls import AclsDelta
from barnabas.metadata.client_quotas import ClientQuotasDelta
from barnabas.metadata.cluster import ClusterDelta
from barnabas.metadata.configs import ConfigResource, ConfigurationsDelta
from barnabas.metadata.delegation_tokens import DelegationTokensDelta
from barnabas.metadata.errors import MetadataReplayError
from barnabas.metadata.features import FeaturesDelta
from barnabas.metadata.image import EMPTY_IMAGE, PARTS, MetadataImage
from barnabas.metadata.metadata_version import MetadataVersion
from barnabas.metadata.producer_ids import ProducerIdsDelta
from barnabas.metadata.provenance import MetadataProvenance
from barnabas.metadata.scram import ScramDelta
from barnabas.metadata.topics_delta import TopicsDelta
from barnabas.protocol.internal import metadata as records
from barnabas.protocol.internal.framing import MetadataRecord


class MetadataDelta:
    """Collects records on top of an image, and creates the next image.

    >>> from barnabas.metadata.provenance import MetadataProvenance
    >>> from barnabas.protocol.internal.metadata import ConfigRecord
    >>> delta = MetadataDelta(EMPTY_IMAGE)
    >>> delta.replay(ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="60000"))
    >>> image = delta.apply(MetadataProvenance(0, 1, 0, True))
    >>> dict(image.configs.resources)
    {ConfigResource(type=2, name='orders'): {'retention.ms': '60000'}}

    Each part of the image has its own delta, created with the first record for that part. A part without one is None
    here, and is the same object in both images. Publishers read the changes from these, instead of comparing images:
    ``delta.topics`` is None if no record was about topics, and false if none of them changed anything.

    Not thread-safe: the loader fills it, and nothing changes it after it was published.
    """

    __slots__ = (
        "acls",
        "client_quotas",
        "cluster",
        "configs",
        "delegation_tokens",
        "features",
        "image",
        "producer_ids",
        "scram",
        "topics",
    )

    def __init__(self, image: MetadataImage = EMPTY_IMAGE) -> None:
        self.image = image
        self.features: FeaturesDelta | None = None
        self.cluster: ClusterDelta | None = None
        self.topics: TopicsDelta | None = None
        self.configs: ConfigurationsDelta | None = None
        self.client_quotas: ClientQuotasDelta | None = None
        self.producer_ids: ProducerIdsDelta | None = None
        self.acls: AclsDelta | None = None
        self.scram: ScramDelta | None = None
        self.delegation_tokens: DelegationTokensDelta | None = None

    @classmethod
    def of_everything(cls, image: MetadataImage) -> MetadataDelta:
        """Returns the delta from the empty image to this one, for a new publisher.

        It takes all parts over from the image, instead of writing them as records and replaying them.
        """
        delta = cls(EMPTY_IMAGE)
        for part, kind in _KINDS.items():
            content = getattr(image, part)
            if content:
                setattr(delta, part, kind.of_everything(content))
        return delta

    @property
    def is_empty(self) -> bool:
        return all(getattr(self, part) is None for part in PARTS)

    @property
    def metadata_version_change(self) -> MetadataVersion | None:
        """The new ``metadata.version``, None if it is unchanged."""
        return None if self.features is None else self.features.metadata_version_change

    def replay(self, record: MetadataRecord) -> None:
        """Adds a record. Raises MetadataReplayError for an inconsistent one, which changes nothing."""
        found = _REPLAY.get(type(record))
        if found is None:
            if type(record) not in _WITHOUT_EFFECT:
                raise MetadataReplayError(f"{type(record).__name__} is not part of a metadata image")
            return
        part, method = found
        delta = getattr(self, part)
        removed_topic = method(self._open(part) if delta is None else delta, record)
        if removed_topic is not None:
            self._remove_configuration(removed_topic)

    def finish_snapshot(self) -> None:
        """Computes the difference; must be called after the last record of a snapshot.

        Everything that the snapshot did not mention is removed; everything that is equal has not changed.
        """
        for part in PARTS:
            delta = getattr(self, part)
            if delta is None:
                delta = self._open(part)
            delta.finish_snapshot()
            if not delta:
                setattr(self, part, None)

    def apply(self, provenance: MetadataProvenance) -> MetadataImage:
        """Returns the next image. Its cost depends on the number of changes."""
        image = self.image
        return MetadataImage(
            provenance,
            *(getattr(image, part) if (delta := getattr(self, part)) is None else delta.apply() for part in PARTS),
        )

    def _remove_configuration(self, topic: str) -> None:
        """Removes the configuration of a deleted topic, which has no records of its own for that."""
        if self.configs is not None or ConfigResource.topic(topic) in self.image.configs.resources:
            configs: ConfigurationsDelta = self._open("configs") if self.configs is None else self.configs
            configs.remove_topic(topic)

    def _open(self, part: str) -> Any:
        delta = _KINDS[part](getattr(self.image, part))
        setattr(self, part, delta)
        return delta

    def __repr__(self) -> str:
        shown = [f"{part}={getattr(self, part)!r}" for part in PARTS if getattr(self, part) is not None]
        return f"MetadataDelta({', '.join(shown)})"


_KINDS: dict[str, Any] = {
    "features": FeaturesDelta,
    "cluster": ClusterDelta,
    "topics": TopicsDelta,
    "configs": ConfigurationsDelta,
    "client_quotas": ClientQuotasDelta,
    "producer_ids": ProducerIdsDelta,
    "acls": AclsDelta,
    "scram": ScramDelta,
    "delegation_tokens": DelegationTokensDelta,
}

_REPLAY: dict[type[MetadataRecord], tuple[str, Callable[[Any, Any], str | None]]] = {
    records.FeatureLevelRecord: ("features", FeaturesDelta.replay),
    records.RegisterBrokerRecord: ("cluster", ClusterDelta.register_broker),
    records.UnregisterBrokerRecord: ("cluster", ClusterDelta.unregister_broker),
    records.FenceBrokerRecord: ("cluster", ClusterDelta.fence_broker),
    records.UnfenceBrokerRecord: ("cluster", ClusterDelta.unfence_broker),
    records.BrokerRegistrationChangeRecord: ("cluster", ClusterDelta.change_broker),
    records.RegisterControllerRecord: ("cluster", ClusterDelta.register_controller),
    records.TopicRecord: ("topics", TopicsDelta.create_topic),
    records.PartitionRecord: ("topics", TopicsDelta.create_partition),
    records.PartitionChangeRecord: ("topics", TopicsDelta.change_partition),
    records.RemoveTopicRecord: ("topics", TopicsDelta.remove_topic),
    records.ClearElrRecord: ("topics", TopicsDelta.clear_elr),
    records.ConfigRecord: ("configs", ConfigurationsDelta.replay),
    records.ClientQuotaRecord: ("client_quotas", ClientQuotasDelta.replay),
    records.ProducerIdsRecord: ("producer_ids", ProducerIdsDelta.replay),
    records.AccessControlEntryRecord: ("acls", AclsDelta.add),
    records.RemoveAccessControlEntryRecord: ("acls", AclsDelta.remove),
    records.UserScramCredentialRecord: ("scram", ScramDelta.put),
    records.RemoveUserScramCredentialRecord: ("scram", ScramDelta.remove),
    records.DelegationTokenRecord: ("delegation_tokens", DelegationTokensDelta.put),
    records.RemoveDelegationTokenRecord: ("delegation_tokens", DelegationTokensDelta.remove),
}
"""The part and the method for each record type. The method returns the name of a topic that it removed."""

_WITHOUT_EFFECT = frozenset({records.NoOpRecord, records.ZkMigrationStateRecord})
"""Records that only advance the offset. Those of transactions are not included: they must not get past the loader."""
