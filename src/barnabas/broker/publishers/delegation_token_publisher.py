"""Passes delegation tokens from the metadata log to the broker's token cache, which derives their credentials (A08)."""

from __future__ import annotations

from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.publisher import LoaderManifest, MetadataPublisher
from barnabas.security.tokens import DelegationTokenCache


class DelegationTokenPublisher(MetadataPublisher):
    """Must come before the publisher of the metadata cache, so that a token has credentials when clients can use it."""

    def __init__(self, node_id: int, tokens: DelegationTokenCache) -> None:
        self._node_id = node_id
        self._tokens = tokens

    @property
    def name(self) -> str:
        return f"DelegationTokenPublisher broker id={self._node_id}"

    def on_metadata_update(self, delta: MetadataDelta, _image: MetadataImage, _manifest: LoaderManifest) -> None:
        if delta.delegation_tokens is not None:
            self._tokens.update(delta.delegation_tokens.changes)
