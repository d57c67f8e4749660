"""The SCRAM part of an image: the data to verify a password, without the password."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from barnabas.common.dataclass import dataclass, field
from barnabas.common.errors import Errors
from barnabas.metadata.map_delta import MapDelta
from barnabas.metadata.persistent_map import PersistentMap
from barnabas.protocol.internal.metadata import RemoveUserScramCredentialRecord, UserScramCredentialRecord

if TYPE_CHECKING:
    from barnabas.metadata.writer import ImageWriter, ImageWriterOptions
    from barnabas.protocol.messages import describe_user_scram_credentials as messages


class ScramMechanism(IntEnum):
    """The mechanisms, with the codes of AlterUserScramCredentials."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


class ScramUser(NamedTuple):
    """A user and a mechanism: a user can have a credential for each."""

    mechanism: int
    name: str


class ScramCredential(NamedTuple):
    """The server's data to verify a password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        """Leaves out the keys, which would allow impersonating the server."""
        return f"ScramCredential(iterations={self.iterations})"


@dataclass(frozen=True, slots=True)
class ScramImage:
    """Credentials by mechanism and user."""

    credentials: PersistentMap[ScramUser, ScramCredential] = field(default_factory=PersistentMap)

    def __bool__(self) -> bool:
        return bool(self.credentials)

    def credential(self, mechanism: int, user: str) -> ScramCredential | None:
        return self.credentials.get(ScramUser(mechanism, user))

    def write(self, writer: ImageWriter, options: ImageWriterOptions) -> None:
        if not options.metadata_version.supports_scram:
            if self.credentials:
                options.handle_loss("SCRAM credentials")
            return
        for user, credential in sorted(self.credentials.items()):
            writer.write(
                UserScramCredentialRecord(
                    name=user.name,
                    mechanism=user.mechanism,
                    salt=credential.salt,
                    stored_key=credential.stored_key,
                    server_key=credential.server_key,
                    iterations=credential.iterations,
                )
            )

    def describe(
        self, request: messages.DescribeUserScramCredentialsRequest
    ) -> messages.DescribeUserScramCredentialsResponse:
        """Returns the mechanisms for which users have a credential. Without names: all users."""
        from barnabas.protocol.messages import describe_user_scram_credentials as messages

        asked = Counter(user.name for user in request.users or ())
        by_name: dict[str, list[messages.CredentialInfo]] = {}
        for user, credential in sorted(self.credentials.items()):
            info = messages.CredentialInfo(mechanism=user.mechanism, iterations=credential.iterations)
            by_name.setdefault(user.name, []).append(info)
        results = []
        for name in asked or sorted(by_name):
            result = messages.DescribeUserScramCredentialsResult(user=name)
            if asked[name] > 1:
                result.error_code = Errors.DUPLICATE_RESOURCE
                result.error_message = f"the request names user {name} more than once"
            elif name not in by_name:
                result.error_code = Errors.RESOURCE_NOT_FOUND
                result.error_message = f"user {name} has no SCRAM credential"
            else:
                result.credential_infos = by_name[name]
            results.append(result)
        return messages.DescribeUserScramCredentialsResponse(results=results)


class ScramDelta:
    """Changed credentials."""

    def __init__(self, image: ScramImage) -> None:
        self.image = image
        self._credentials = MapDelta(image.credentials)

    @classmethod
    def of_everything(cls, image: ScramImage) -> ScramDelta:
        delta = cls(ScramImage())
        delta._credentials = MapDelta.of_everything(image.credentials)
        return delta

    @property
    def changes(self) -> Mapping[ScramUser, ScramCredential | None]:
        """The credential by mechanism and user, None for a removed one."""
        return self._credentials.changes

    def put(self, record: UserScramCredentialRecord) -> None:
        # Bytes of a decoded record may be views of its buffer, which an image must not keep alive.
        credential = ScramCredential(
            bytes(record.salt), bytes(record.stored_key), bytes(record.server_key), record.iterations
        )
        self._credentials.put(ScramUser(record.mechanism, record.name), credential)

    def remove(self, record: RemoveUserScramCredentialRecord) -> None:
        self._credentials.remove(ScramUser(record.mechanism, record.name))

    def finish_snapshot(self) -> None:
        self._credentials.finish_snapshot()

    def __bool__(self) -> bool:
        return bool(self._credentials)

    def apply(self) -> ScramImage:
        return ScramImage(self._credentials.apply()) if self else self.image
