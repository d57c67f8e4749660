"""The delegation tokens part of an image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from barnabas.common.dataclass import dataclass, field
from barnabas.metadata.map_delta import MapDelta
from barnabas.metadata.persistent_map import PersistentMap
from barnabas.protocol.internal.metadata import DelegationTokenRecord, RemoveDelegationTokenRecord

if TYPE_CHECKING:
    from barnabas.metadata.writer import ImageWriter, ImageWriterOptions


class DelegationToken(NamedTuple):
    """A token without its secret, which is computed from the ID when needed."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp: int
    max_timestamp: int
    expiration_timestamp: int


@dataclass(frozen=True, slots=True)
class DelegationTokensImage:
    """Tokens by ID."""

    tokens: PersistentMap[str, DelegationToken] = field(default_factory=PersistentMap)

    def __bool__(self) -> bool:
        return bool(self.tokens)

    def write(self, writer: ImageWriter, options: ImageWriterOptions) -> None:
        if not options.metadata_version.supports_delegation_tokens:
            if self.tokens:
                options.handle_loss("delegation tokens")
            return
        for _, token in sorted(self.tokens.items()):
            writer.write(token_record(token))


def token_record(token: DelegationToken) -> DelegationTokenRecord:
    return DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=list(token.renewers),
        issue_timestamp=token.issue_timestamp,
        max_timestamp=token.max_timestamp,
        expiration_timestamp=token.expiration_timestamp,
        token_id=token.token_id,
    )


def token_of(record: DelegationTokenRecord) -> DelegationToken:
    return DelegationToken(
        record.token_id,
        record.owner,
        record.requester,
        tuple(record.renewers),
        record.issue_timestamp,
        record.max_timestamp,
        record.expiration_timestamp,
    )


class DelegationTokensDelta:
    """New, renewed and removed tokens."""

    def __init__(self, image: DelegationTokensImage) -> None:
        self.image = image
        self._tokens = MapDelta(image.tokens)

    @classmethod
    def of_everything(cls, image: DelegationTokensImage) -> DelegationTokensDelta:
        delta = cls(DelegationTokensImage())
        delta._tokens = MapDelta.of_everything(image.tokens)
        return delta

    @property
    def changes(self) -> Mapping[str, DelegationToken | None]:
        """The token by ID, None for a removed one."""
        return self._tokens.changes

    def put(self, record: DelegationTokenRecord) -> None:
        self._tokens.put(record.token_id, token_of(record))

    def remove(self, record: RemoveDelegationTokenRecord) -> None:
        self._tokens.remove(record.token_id)

    def finish_snapshot(self) -> None:
        self._tokens.finish_snapshot()

    def __bool__(self) -> bool:
        return bool(self._tokens)

    def apply(self) -> DelegationTokensImage:
        return DelegationTokensImage(self._tokens.apply()) if self else self.image
