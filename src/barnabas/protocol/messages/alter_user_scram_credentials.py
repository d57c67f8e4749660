"""AlterUserScramCredentials (API 51): sets and deletes the SCRAM credentials of users (KIP-554).

Forwarded to the controller. The password itself is never sent: the client chooses a random salt, applies PBKDF2
``iterations`` times and sends the *salted* password, from which the server derives the two keys that it stores. Anyone
who reads this request can still impersonate the user, so send it over an encrypted listener. ``mechanism`` is 1 for
SCRAM-SHA-256, 2 for SCRAM-SHA-512; iterations are bounded, 4096 to 16384.

There is one result per user, not per operation: if one change of a user is refused, none of that user's changes is
made. RESOURCE_NOT_FOUND: the credential to delete does not exist. DUPLICATE_RESOURCE: the request has the same user and
mechanism twice.
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, binary, int8, int16, int32, string
from barnabas.protocol.message import Request, Response, Struct


class ScramCredentialDeletion(Struct):
    name: str = string(default="")
    mechanism: int = int8(default=0)


class ScramCredentialUpsertion(Struct):
    name: str = string(default="")
    mechanism: int = int8(default=0)
    iterations: int = int32(default=0)
    salt: bytes = binary(default=b"")
    salted_password: bytes = binary(default=b"")


class AlterUserScramCredentialsRequest(Request, api_key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS):
    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion, default_factory=list)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion, default_factory=list)


class AlterUserScramCredentialsResult(Struct):
    user: str = string(default="")
    error_code: int = int16(default=0)
    error_message: str | None = string(default="", nullable="0+")


class AlterUserScramCredentialsResponse(Response, api_key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS):
    throttle_time_ms: int = int32(default=0)
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult, default_factory=list)
