"""The metadata log and its record types; separate from the other topics because every node reads this one first."""

from __future__ import annotations

from barnabas.protocol.internal import metadata
from barnabas.protocol.internal.framing import MetadataRecordTypes, metadata_types

CLUSTER_METADATA = MetadataRecordTypes("__cluster_metadata", metadata_types(metadata))
