"""SCRAM credentials, with which brokers verify passwords (KIP-554, KIP-900)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas.common.errors import (
    ApiError,
    DuplicateResourceError,
    ResourceNotFoundError,
    UnacceptableCredentialError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
)
from barnabas.common.snapshot_registry import SnapshotRegistry, TimelineHashMap
from barnabas.controller.feature_control_manager import FeatureControlManager
from barnabas.controller.result import ControllerResult, check_operation_size, error_fields
from barnabas.metadata.errors import MetadataReplayError
from barnabas.metadata.scram import ScramCredential, ScramMechanism, ScramUser
from barnabas.protocol.internal.metadata import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from barnabas.raft.client import ApiMessageAndVersion

if TYPE_CHECKING:
    from barnabas.protocol.messages.alter_user_scram_credentials import (
        AlterUserScramCredentialsRequest,
        AlterUserScramCredentialsResponse,
        ScramCredentialDeletion,
        ScramCredentialUpsertion,
    )

log = logging.getLogger(__name__)


class ScramControlManager:
    """Holds credentials by user and mechanism.

    A client sends the salted password; only the two keys derived from it are stored. They suffice to verify that a
    client has the password, but not to log in as that user (RFC 5802).
    """

    def __init__(self, registry: SnapshotRegistry, features: FeatureControlManager) -> None:
        self._features = features
        self._credentials: TimelineHashMap[ScramUser, ScramCredential] = TimelineHashMap(registry)

    @property
    def credentials(self) -> Mapping[ScramUser, ScramCredential]:
        return self._credentials.present

    def alter_credentials(
        self, request: AlterUserScramCredentialsRequest
    ) -> ControllerResult[AlterUserScramCredentialsResponse]:
        """Alters credentials; returns one result per user.

        The changes of a user are checked in order, deletions first, up to the first that is refused. A user whose
        second change is reached fails with DUPLICATE_RESOURCE. In both cases nothing changes for that user.
        """
        from barnabas.protocol.messages.alter_user_scram_credentials import (
            AlterUserScramCredentialsResponse,
            AlterUserScramCredentialsResult,
        )

        by_user: dict[str, list[ScramCredentialDeletion | ScramCredentialUpsertion]] = {}
        for deletion in request.deletions:
            by_user.setdefault(deletion.name, []).append(deletion)
        for upsertion in request.upsertions:
            by_user.setdefault(upsertion.name, []).append(upsertion)
        records: list[ApiMessageAndVersion] = []
        results = []
        for user, changes in by_user.items():
            error: ApiError | None = None
            try:
                records.append(self._alter(changes))
            except ApiError as raised:
                error = raised
            code, message = error_fields(error)
            results.append(AlterUserScramCredentialsResult(user=user, error_code=code, error_message=message))
        check_operation_size(len(records))
        return ControllerResult.atomic_of(records, AlterUserScramCredentialsResponse(results=results))

    def _alter(self, changes: list[ScramCredentialDeletion | ScramCredentialUpsertion]) -> ApiMessageAndVersion:
        change = changes[0]
        mechanism = self._check(change)
        if len(changes) > 1:
            raise DuplicateResourceError("The request has the user more than once.")
        from barnabas.protocol.messages.alter_user_scram_credentials import ScramCredentialDeletion
        from barnabas.security.sasl import scram

        if isinstance(change, ScramCredentialDeletion):
            removal = RemoveUserScramCredentialRecord(name=change.name, mechanism=mechanism.value)
            return ApiMessageAndVersion(removal, 0)
        if not change.salted_password:
            raise UnacceptableCredentialError("The salted password must not be empty.")
        algorithm, salted = scram.HASHES[mechanism.name.replace("_", "-")], bytes(change.salted_password)
        record = UserScramCredentialRecord(
            name=change.name,
            mechanism=mechanism.value,
            salt=bytes(change.salt),
            stored_key=scram.stored_key(algorithm, salted),
            server_key=scram.server_key(algorithm, salted),
            iterations=change.iterations,
        )
        return ApiMessageAndVersion(record, 0)

    def _check(self, change: ScramCredentialDeletion | ScramCredentialUpsertion) -> ScramMechanism:
        from barnabas.protocol.messages.alter_user_scram_credentials import ScramCredentialDeletion
        from barnabas.security.sasl.scram import MAX_ITERATIONS, MIN_ITERATIONS

        if not self._features.metadata_version.supports_scram:
            raise UnsupportedVersionError("The cluster's metadata.version does not support SCRAM credentials.")
        if not change.name:
            raise UnacceptableCredentialError("The name of a user must not be empty.")
        try:
            mechanism = ScramMechanism(change.mechanism)
        except ValueError:
            raise UnsupportedSaslMechanismError(f"Unknown SCRAM mechanism {change.mechanism}.") from None
        if isinstance(change, ScramCredentialDeletion):
            if ScramUser(mechanism, change.name) not in self._credentials:
                raise ResourceNotFoundError(f"User {change.name!r} has no credential of this mechanism.")
        elif not MIN_ITERATIONS <= change.iterations <= MAX_ITERATIONS:
            raise UnacceptableCredentialError(
                f"The number of iterations must be between {MIN_ITERATIONS} and {MAX_ITERATIONS}: {change.iterations}"
            )
        return mechanism

    def replay(self, record: UserScramCredentialRecord) -> None:
        credential = ScramCredential(
            bytes(record.salt), bytes(record.stored_key), bytes(record.server_key), record.iterations
        )
        self._credentials[ScramUser(record.mechanism, record.name)] = credential
        log.info("Set the SCRAM credential of %s for mechanism %d", record.name, record.mechanism)

    def replay_removal(self, record: RemoveUserScramCredentialRecord) -> None:
        if self._credentials.pop(ScramUser(record.mechanism, record.name)) is None:
            raise MetadataReplayError(f"cannot remove the SCRAM credential of {record.name!r}: it does not exist")
        log.info("Removed the SCRAM credential of %s for mechanism %d", record.name, record.mechanism)
