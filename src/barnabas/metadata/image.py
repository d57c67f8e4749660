"""The metadata image: all that is known of a cluster as of one offset."""

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
    """Everything the metadata log says, up to the record that ``provenance`` names.

    Two nodes that have replayed the log to the same offset have equal images. Nothing in an image ever changes: whoever
    holds a reference can read on at leisure, without a lock, while newer images come into being beside it. They share
    all the parts, topics and partitions that have not changed in between.

    To read from two parts, take the image once: ``cache.image.topics`` followed by ``cache.image.cluster`` may be two
    moments.
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
        """The offset of the last record in it, -1 for the empty image."""
        return self.provenance.last_contained_offset

    def same_content(self, other: MetadataImage) -> bool:
        """Whether both say the same, wherever they got it from."""
        return all(getattr(self, part) == getattr(other, part) for part in PARTS)

    def write(self, writer: ImageWriter, options: ImageWriterOptions | None = None) -> None:
        """Writes records that make an equal image when they are replayed: the content of a snapshot.

        By default they are in the versions that the image's own ``metadata.version`` asks for. They come in an order
        that depends on the content only, so that equal images make equal snapshots.
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
    "features",  # first, because metadata.version must precede what is read by it
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
