"""The metadata image: the state of a cluster at one offset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.common.dataclass import dataclass, field
from barnabas.metadata.acls import AclsImage
from barnabas.metadata.client_quotas import ClientQuotasImage
from barnabas.metadata.cluster import ClusterImage
from barnabas.metadata.configs import ConfigurationsImage
from barnabas.metadata.delegation_tokens import DelegationTokensImage
from barnabas.metadata.features import FeaturesImage
from barnabas.metadata.producer_ids import ProducerIdsImage
from barnabas.metadata.provenance import NOWHERE, MetadataProvenance
from barnabas.metadata.scram import ScramImage
from barnabas.metadata.topics import TopicsImage

if TYPE_CHECKING:
    from barnabas.metadata.writer import ImageWriter, ImageWriterOptions


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """The contents of the metadata log up to the record that ``provenance`` names.

    Two nodes that have replayed the log to the same offset have equal images. An image is immutable: readers need no
    lock, and can keep using it while newer images are created. Those share all parts, topics and partitions that have
    not changed in between.

    To read from two parts, take the image once: ``cache.image.topics`` followed by ``cache.image.cluster`` may use two
    different images.
    """

    provenance: MetadataProvenance = NOWHERE
    features: FeaturesImage = field(default_factory=FeaturesImage)
    cluster: ClusterImage = field(default_factory=ClusterImage)
    topics: TopicsImage = field(default_factory=TopicsImage)
    configs: ConfigurationsImage = field(default_factory=ConfigurationsImage)
    client_quotas: ClientQuotasImage = field(default_factory=ClientQuotasImage)
    producer_ids: ProducerIdsImage = field(default_factory=ProducerIdsImage)
    acls: AclsImage = field(default_factory=AclsImage)
    scram: ScramImage = field(default_factory=ScramImage)
    delegation_tokens: DelegationTokensImage = field(default_factory=DelegationTokensImage)

    @property
    def is_empty(self) -> bool:
        return not (
            self.features
            or self.cluster
            or self.topics
            or self.configs
            or self.client_quotas
            or self.producer_ids
            or self.acls
            or self.scram
            or self.delegation_tokens
        )

    @property
    def offset(self) -> int:
        """The offset of its last record, -1 for the empty image."""
        return self.provenance.last_contained_offset

    def same_content(self, other: MetadataImage) -> bool:
        """Returns whether the contents are equal, whatever their provenance."""
        return all(getattr(self, part) == getattr(other, part) for part in PARTS)

    def write(self, writer: ImageWriter, options: ImageWriterOptions | None = None) -> None:
        """Writes records that create an equal image when they are replayed: the contents of a snapshot.

        By default they have the versions of the image's own ``metadata.version``. Their order depends on the contents
        only, so that equal images have equal snapshots.
        """
        from barnabas.metadata.writer import ImageWriterOptions

        if options is None:
            options = ImageWriterOptions(self.features.metadata_version_or_raise())
        complete = False
        try:
            for part in PARTS:
                getattr(self, part).write(writer, options)
            complete = True
        finally:
            writer.close(complete)


PARTS = (
    "features",  # first, because metadata.version determines how to read the others
    "cluster",
    "topics",
    "configs",
    "client_quotas",
    "producer_ids",
    "acls",
    "scram",
    "delegation_tokens",
)

EMPTY_IMAGE = MetadataImage()
