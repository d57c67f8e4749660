"""SCRAM users that exist before a cluster starts for the first time: ``format --add-scram`` (A06, KIP-900).

Brokers that log in to each other with SCRAM need their users in the first records of the metadata log. An argument is

    SCRAM-SHA-256=[name=alice,password=secret]
    SCRAM-SHA-512=[name=bob,iterations=8192,salt="c2FsdA==",saltedpassword="..."]

as for ``kafka-storage format``, or ``@FILE`` for a file with one of these per line, which keeps passwords out of the
list of processes. Errors never show a value, which may be a password.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator
from typing import Final

from barnabas.common.errors import InvalidConfigurationError
from barnabas.metadata.scram import ScramMechanism
from barnabas.protocol.internal.metadata import UserScramCredentialRecord
from barnabas.security.sasl.scram import (
    HASHES,
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    ScramCredential,
    server_key,
    stored_key,
)
from barnabas.security.secret_file import read_secret_file

_ARGUMENT: Final = re.compile(r"([^=\[]+)=\[(.*)\]", re.DOTALL)
_FIELDS: Final = frozenset({"name", "password", "saltedpassword", "salt", "iterations"})


def scram_records(arguments: Iterable[str]) -> list[UserScramCredentialRecord]:
    """Returns the records of all arguments; raises `InvalidConfigurationError`."""
    records: dict[tuple[int, str], UserScramCredentialRecord] = {}
    for argument in _expanded(arguments):
        record = parse_scram_argument(argument)
        key = record.mechanism, record.name
        if key in records:
            raise InvalidConfigurationError(f"--add-scram: user {record.name} is given twice for one mechanism")
        records[key] = record
    return list(records.values())


def _expanded(arguments: Iterable[str]) -> Iterator[str]:
    for argument in arguments:
        if argument.startswith("@"):
            lines = read_secret_file(argument[1:], "file of --add-scram").splitlines()
            yield from (line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#"))
        else:
            yield argument


def parse_scram_argument(argument: str) -> UserScramCredentialRecord:
    """Parses one argument and derives the keys of the user."""
    found = _ARGUMENT.fullmatch(argument.strip())
    if found is None:
        raise InvalidConfigurationError("--add-scram must have the form MECHANISM=[name=NAME,password=PASSWORD]")
    mechanism = found[1].strip()
    if mechanism not in HASHES:
        raise InvalidConfigurationError(
            f"--add-scram: the mechanism must be one of {', '.join(HASHES)}, not {mechanism[:40]!r}"
        )
    fields = dict(map(_field, found[2].split(",")))
    unknown = fields.keys() - _FIELDS
    if unknown:
        # A field may also be the rest of a password with a comma, so the unknown ones are not shown.
        raise InvalidConfigurationError(f"--add-scram: the fields are {', '.join(sorted(_FIELDS))}; another was given")
    name = fields.get("name")
    if not name:
        raise InvalidConfigurationError("You must supply 'name' to add-scram")
    credential = _credential(mechanism, fields)
    return UserScramCredentialRecord(
        name=name,
        mechanism=ScramMechanism[mechanism.replace("-", "_")].value,
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=credential.iterations,
    )


def _field(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InvalidConfigurationError("--add-scram: a field has no equals sign; a password must not contain a comma")
    if len(value) >= 2 and value[0] == value[-1] == '"':
        value = value[1:-1]
    return name.strip(), value


def _credential(mechanism: str, fields: dict[str, str]) -> ScramCredential:
    iterations = fields.get("iterations", str(MIN_ITERATIONS))
    if not re.fullmatch("[0-9]{1,9}", iterations) or not MIN_ITERATIONS <= int(iterations) <= MAX_ITERATIONS:
        raise InvalidConfigurationError(
            f"--add-scram: iterations must be a number from {MIN_ITERATIONS} to {MAX_ITERATIONS}"
        )
    salt = _decoded(fields, "salt") if "salt" in fields else None
    password = fields.get("password")
    if password:
        return ScramCredential.of_password(mechanism, password, iterations=int(iterations), salt=salt)
    if not fields.get("saltedpassword"):
        raise InvalidConfigurationError("You must supply one of 'password' or 'saltedpassword' to add-scram")
    if not salt:
        raise InvalidConfigurationError("You must supply 'salt' with 'saltedpassword' to add-scram")
    salted, algorithm = _decoded(fields, "saltedpassword"), HASHES[mechanism]
    return ScramCredential(salt, stored_key(algorithm, salted), server_key(algorithm, salted), int(iterations))


def _decoded(fields: dict[str, str], name: str) -> bytes:
    try:
        return base64.b64decode(fields[name], validate=True)
    except ValueError:
        raise InvalidConfigurationError(f"--add-scram: {name} is not base64") from None
