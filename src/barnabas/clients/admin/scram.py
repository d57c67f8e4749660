"""SCRAM credentials of users: salted hashes, never the password itself.

A broker before Kafka 2.7 lacks these APIs and causes an `UnsupportedVersionError`.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum

from barnabas.clients.admin.internals.admin_api_driver import error_of
from barnabas.clients.admin.internals.node_choice import ANY, CONTROLLER
from barnabas.clients.admin.internals.operation import Operation
from barnabas.clients.admin.results import Results
from barnabas.common.errors import ApiError, UnknownServerError, raise_for_code
from barnabas.protocol.messages import alter_user_scram_credentials as alter_api
from barnabas.protocol.messages import describe_user_scram_credentials as describe_api


class ScramMechanism(IntEnum):
    """The mechanisms of SCRAM, by their number in the protocol."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def hash_name(self) -> str:
        """The hash function, by its name in ``hashlib``."""
        return "sha512" if self is ScramMechanism.SCRAM_SHA_512 else "sha256"


@dataclass(frozen=True, slots=True)
class ScramCredentialInfo:
    """The public data of a credential."""

    mechanism: ScramMechanism
    iterations: int


@dataclass(frozen=True, slots=True)
class ScramCredentialUpsertion:
    """A password to set. The default salt is random."""

    user: str
    mechanism: ScramMechanism
    password: bytes = field(repr=False)
    iterations: int = 4096
    salt: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ScramCredentialDeletion:
    """A credential to delete."""

    user: str
    mechanism: ScramMechanism


async def describe_user_scram_credentials(
    operation: Operation, users: Iterable[str] | None = None, *, partial: bool = False
) -> Results[str, tuple[ScramCredentialInfo, ...]]:
    """Returns the users' credentials and their mechanisms."""
    request = describe_api.DescribeUserScramCredentialsRequest(
        users=None if users is None else [describe_api.UserName(name=name) for name in users]
    )

    def read(
        response: describe_api.DescribeUserScramCredentialsResponse,
    ) -> Results[str, tuple[ScramCredentialInfo, ...]]:
        raise_for_code(response.error_code, response.error_message)
        found: dict[str, tuple[ScramCredentialInfo, ...]] = {}
        failed: dict[str, ApiError] = {}
        for row in response.results:
            error = error_of(row.error_code, row.error_message)
            if error is not None:
                failed[row.user] = error
            else:
                found[row.user] = tuple(
                    ScramCredentialInfo(
                        ScramMechanism(one.mechanism) if one.mechanism in {1, 2} else ScramMechanism.UNKNOWN,
                        one.iterations,
                    )
                    for one in row.credential_infos
                )
        return Results(found, failed)

    return (await operation.ask(ANY, request, read)).checked(partial)


async def alter_user_scram_credentials(
    operation: Operation,
    alterations: Iterable[ScramCredentialUpsertion | ScramCredentialDeletion],
    *,
    partial: bool = False,
) -> Results[str, None]:
    """Sets and deletes credentials, by user. The password is salted here, and does not leave the process."""
    changes = list(alterations)
    request = alter_api.AlterUserScramCredentialsRequest(
        deletions=[
            alter_api.ScramCredentialDeletion(name=one.user, mechanism=one.mechanism)
            for one in changes
            if isinstance(one, ScramCredentialDeletion)
        ],
        upsertions=[_upsertion(one) for one in changes if isinstance(one, ScramCredentialUpsertion)],
    )
    users = list(dict.fromkeys(one.user for one in changes))

    def read(response: alter_api.AlterUserScramCredentialsResponse) -> Results[str, None]:
        included = {row.user: error_of(row.error_code, row.error_message) for row in response.results}
        failed: dict[str, ApiError] = {}
        for user in users:
            error = included.get(user, UnknownServerError(f"The controller's response does not include {user}."))
            if error is not None:
                failed[user] = error
        return Results({user: None for user in users if user not in failed}, failed)

    return (await operation.ask(CONTROLLER, request, read)).checked(partial)


def _upsertion(change: ScramCredentialUpsertion) -> alter_api.ScramCredentialUpsertion:
    salt = secrets.token_bytes(24) if change.salt is None else change.salt
    salted = hashlib.pbkdf2_hmac(change.mechanism.hash_name, change.password, salt, change.iterations)
    return alter_api.ScramCredentialUpsertion(
        name=change.user,
        mechanism=change.mechanism,
        iterations=change.iterations,
        salt=salt,
        salted_password=salted,
    )
