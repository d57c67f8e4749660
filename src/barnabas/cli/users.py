"""``barnabas users``: shows, creates, changes and deletes SCRAM users.

barnabas users list
barnabas users create alice
barnabas users alter alice --mechanism SCRAM-SHA-256 --password-file alice.secret
barnabas users delete alice
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.cli.admin import add_common, add_yes, administered, confirm, tell
from barnabas.cli.arguments import ArgumentParser, add_command
from barnabas.cli.console import CommandError, UsageError
from barnabas.cli.passwords import add_password, read_password

if TYPE_CHECKING:
    from barnabas.cli.arguments import Commands
    from barnabas.cli.cluster import Cluster
    from barnabas.clients.admin import KafkaAdminClient, ScramCredentialInfo, ScramMechanism

MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256")
MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16_384
DESCRIPTION: Final = """\
Shows, creates, changes and deletes SCRAM users. The cluster stores salted hashes of passwords; the password itself does
not leave this command."""
CREATE: Final = """Creates a user, or adds a mechanism to one. The password is asked for, and never shown.

  barnabas users create alice
  barnabas users create alice --password-file alice.secret --mechanism SCRAM-SHA-256"""
ALTER: Final = """Sets a new password. Open connections stay open until their session ends."""
DELETE: Final = """Deletes a user, or one mechanism of a user. Open connections stay open until their session ends."""


def add_users(commands: Commands) -> None:
    parser = commands.add_parser("users", help="show, create and delete SCRAM users", description=DESCRIPTION)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", parser_class=ArgumentParser, required=True)

    listing = add_command(actions, "list", list_command, "show users", "Shows all users, or the named ones.")
    add_common(listing)
    listing.add_argument("names", nargs="*", metavar="USER", help="only these users")

    for name, run, summary, description in (
        ("create", create_command, "create a user", CREATE),
        ("alter", alter_command, "set a password", ALTER),
    ):
        action = add_command(actions, name, run, summary, description)
        add_common(action, json=False)
        action.add_argument("user", metavar="USER", help="the user, without User:")
        _add_mechanism(action)
        action.add_argument(
            "--iterations",
            type=int,
            default=MIN_ITERATIONS,
            help=f"of the hash, {MIN_ITERATIONS} to {MAX_ITERATIONS}; default: {MIN_ITERATIONS}",
        )
        add_password(action)

    deleting = add_command(actions, "delete", delete_command, "delete a user", DELETE)
    add_common(deleting, json=False)
    deleting.add_argument("user", metavar="USER", help="the user, without User:")
    _add_mechanism(deleting, "default: all of the user")
    add_yes(deleting)


def _add_mechanism(parser: ArgumentParser, default: str = "default: SCRAM-SHA-512") -> None:
    parser.add_argument("-m", "--mechanism", choices=MECHANISMS, help=f"the SASL mechanism; {default}")


def list_command(cluster: Cluster, names: list[str], as_json: bool) -> None:
    """Prints users with their mechanisms."""
    from barnabas.cli.output import print_json, print_rich, table

    with administered(cluster) as admin:
        users = admin.describe_user_scram_credentials(names or None)
    if as_json:
        print_json({user: {_title(one.mechanism): one.iterations for one in found} for user, found in users.items()})
    elif not users:
        tell("There are no SCRAM users.")
    else:
        rows = [
            (user, _title(one.mechanism), str(one.iterations)) for user, found in sorted(users.items()) for one in found
        ]
        print_rich(table(("user", "mechanism", "iterations"), rows, right=["iterations"]))


def create_command(
    cluster: Cluster,
    user: str,
    mechanism: str | None,
    iterations: int,
    password_file: Path | None,
    password_env: str | None,
) -> None:
    """Creates a user."""
    chosen = mechanism or MECHANISMS[0]
    _check_iterations(iterations)
    with administered(cluster) as admin:
        if chosen in map(_mechanism_title, _credentials(admin, user)):
            raise CommandError(f"user {user} has a {chosen} password already; use barnabas users alter to set another")
        _set(admin, user, chosen, iterations, read_password(password_file, password_env))
    tell(f"created {user} ({chosen})")


def alter_command(
    cluster: Cluster,
    user: str,
    mechanism: str | None,
    iterations: int,
    password_file: Path | None,
    password_env: str | None,
) -> None:
    """Sets the password of a user."""
    chosen = mechanism or MECHANISMS[0]
    _check_iterations(iterations)
    with administered(cluster) as admin:
        if chosen not in map(_mechanism_title, _credentials(admin, user)):
            raise CommandError(f"user {user} has no {chosen} password; use barnabas users create")
        _set(admin, user, chosen, iterations, read_password(password_file, password_env))
    tell(f"set the password of {user} ({chosen})")


def delete_command(cluster: Cluster, user: str, mechanism: str | None, assume_yes: bool) -> None:
    """Deletes the credentials of a user."""
    from barnabas.clients.admin import ScramCredentialDeletion

    with administered(cluster) as admin:
        present = [one.mechanism for one in _credentials(admin, user)]
        wanted = [one for one in present if mechanism in {None, _title(one)}]
        if not wanted:
            raise CommandError(f"user {user} has no {mechanism or 'SCRAM'} password")
        confirm(f"Delete {user} ({', '.join(map(_title, wanted))})?", assume_yes)
        for one in wanted:  # a request with two mechanisms of a user is refused
            admin.alter_user_scram_credentials([ScramCredentialDeletion(user, one)])
    tell(f"deleted {user} ({', '.join(map(_title, wanted))})")


def _check_iterations(iterations: int) -> None:
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise UsageError(f"--iterations must be between {MIN_ITERATIONS} and {MAX_ITERATIONS}: {iterations}")


def _credentials(admin: KafkaAdminClient, user: str) -> tuple[ScramCredentialInfo, ...]:
    from barnabas.common.errors import ResourceNotFoundError

    if not user:
        raise UsageError("the name of a user must not be empty")
    found = admin.describe_user_scram_credentials([user], partial=True)
    error = found.errors.get(user)
    if error is not None and not isinstance(error, ResourceNotFoundError):
        raise error
    return found.get(user, ())


def _set(admin: KafkaAdminClient, user: str, mechanism: str, iterations: int, password: str) -> None:
    from barnabas.clients.admin import ScramCredentialUpsertion, ScramMechanism

    code = ScramMechanism[mechanism.replace("-", "_")]
    admin.alter_user_scram_credentials([ScramCredentialUpsertion(user, code, password.encode(), iterations)])


def _title(mechanism: ScramMechanism) -> str:
    return mechanism.name.replace("_", "-")


def _mechanism_title(credential: ScramCredentialInfo) -> str:
    return _title(credential.mechanism)
