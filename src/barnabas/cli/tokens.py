"""``barnabas tokens``: creates, shows, renews and expires delegation tokens.

barnabas tokens create --renewer User:scheduler --max-lifetime 7d
barnabas tokens list
barnabas tokens renew TOKEN_ID --period 12h
barnabas tokens expire TOKEN_ID

A token is named by its ID, which is not secret. Its HMAC is: it is shown once, by ``create``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.admin import add_common, administered, tell
from barnabas.cli.arguments import ArgumentParser, add_command
from barnabas.cli.console import CommandError, UsageError

if TYPE_CHECKING:
    from barnabas.cli.arguments import Commands
    from barnabas.cli.cluster import Cluster
    from barnabas.clients.admin import DelegationToken, KafkaAdminClient

DESCRIPTION: Final = """\
Creates, shows, renews and expires delegation tokens, with which workers authenticate as another principal. The cluster
needs delegation.token.secret.key, and the client an authenticated connection."""
CREATE: Final = """Creates a token and prints it, with the password that its holder needs.

A client authenticates with it by SCRAM, with the token ID as the user name and tokenauth=true."""
LIST: Final = "Shows the tokens that you may see, without their secrets."
RENEW: Final = "Moves the expiry of a token, at most to its maximum lifetime. For its owner and its renewers."
EXPIRE: Final = "Expires a token now, or after a period. For its owner and its renewers."


def add_tokens(commands: Commands) -> None:
    parser = commands.add_parser("tokens", help="create, show and expire delegation tokens", description=DESCRIPTION)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", parser_class=ArgumentParser, required=True)

    listing = add_command(actions, "list", list_command, "show tokens", LIST)
    add_common(listing)
    listing.add_argument(
        "--owner", dest="owners", action="append", default=[], metavar="PRINCIPAL", help="only of this principal"
    )

    creating = add_command(actions, "create", create_command, "create a token", CREATE)
    add_common(creating)
    creating.add_argument("--owner", metavar="PRINCIPAL", help="for example User:alice; default: you")
    creating.add_argument(
        "--renewer", dest="renewers", action="append", default=[], metavar="PRINCIPAL", help="may renew and expire it"
    )
    creating.add_argument("--max-lifetime", metavar="DURATION", help="for example 7d; default: the cluster's maximum")

    for name, run, summary, description, default in (
        ("renew", renew_command, "renew a token", RENEW, "the cluster's maximum"),
        ("expire", expire_command, "expire a token", EXPIRE, "now"),
    ):
        action = add_command(actions, name, run, summary, description)
        add_common(action, json=False)
        action.add_argument("token_id", metavar="TOKEN_ID", help="the ID of the token")
        action.add_argument("--period", metavar="DURATION", help=f"from now, for example 12h; default: {default}")


def list_command(cluster: Cluster, owners: list[str], as_json: bool) -> None:
    """Prints tokens."""
    from barnabas.cli.output import print_json, print_rich, table, time_text

    _check_principals(owners)
    with administered(cluster) as admin:
        tokens = admin.describe_delegation_tokens(owners or None)
    if as_json:
        print_json([_document(token) for token in tokens])
    elif not tokens:
        tell("There are no tokens.")
    else:
        rows = [
            (
                token.token_id,
                token.owner,
                token.requester or "-",
                ", ".join(token.renewers) or "-",
                time_text(token.expiry_timestamp_ms),
                time_text(token.max_timestamp_ms),
            )
            for token in sorted(tokens, key=lambda one: one.issue_timestamp_ms)
        ]
        print_rich(table(("token", "owner", "requester", "renewers", "expires", "at the latest"), rows))


def create_command(
    cluster: Cluster, owner: str | None, renewers: list[str], max_lifetime: str | None, as_json: bool
) -> None:
    """Creates a token and prints it."""
    from barnabas.cli.output import print_json, time_text

    _check_principals([*renewers, *([] if owner is None else [owner])])
    lifetime_ms = _period_ms("--max-lifetime", max_lifetime)
    with administered(cluster) as admin:
        token = admin.create_delegation_token(owner=owner, renewers=renewers, max_lifetime_ms=lifetime_ms)
    if as_json:
        print_json({**_document(token), "password": token.password})
        return
    tell(f"token     {token.token_id}")
    tell(f"password  {token.password}")
    tell(f"owner     {token.owner}")
    tell(f"expires   {time_text(token.expiry_timestamp_ms)}, at the latest {time_text(token.max_timestamp_ms)}")


def renew_command(cluster: Cluster, token_id: str, period: str | None) -> None:
    """Renews a token."""
    from barnabas.cli.output import time_text

    period_ms = _period_ms("--period", period)
    with administered(cluster) as admin:
        expiry = admin.renew_delegation_token(_token(admin, token_id).hmac, period_ms=period_ms)
    tell(f"{token_id} expires at {time_text(expiry)}")


def expire_command(cluster: Cluster, token_id: str, period: str | None) -> None:
    """Expires a token."""
    from barnabas.cli.output import time_text

    period_ms = _period_ms("--period", period)
    with administered(cluster) as admin:
        expiry = admin.expire_delegation_token(_token(admin, token_id).hmac, period_ms=period_ms)
    tell(f"{token_id} expired" if period is None else f"{token_id} expires at {time_text(expiry)}")


def _token(admin: KafkaAdminClient, token_id: str) -> DelegationToken:
    """Returns the token with its HMAC, by which the cluster knows it."""
    for token in admin.describe_delegation_tokens():
        if token.token_id == token_id:
            return token
    raise CommandError(f"there is no token {token_id}, or you may not see it")


def _period_ms(option: str, text: str | None) -> int:
    from barnabas.cli.times import parse_duration_ms

    if text is None:
        return -1
    try:
        period_ms = parse_duration_ms(text)
    except UsageError as error:
        raise UsageError(f"{option}: {error}") from None
    if period_ms <= 0:
        raise UsageError(f"{option} must be positive: {text!r}")
    return period_ms


def _check_principals(texts: list[str]) -> None:
    from barnabas.security.principal import KafkaPrincipal

    for text in texts:
        try:
            KafkaPrincipal.parse(text)
        except ValueError as error:
            raise UsageError(str(error)) from None


def _document(token: DelegationToken) -> dict[str, Any]:
    return {
        "token_id": token.token_id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "issued_ms": token.issue_timestamp_ms,
        "expires_ms": token.expiry_timestamp_ms,
        "expires_at_the_latest_ms": token.max_timestamp_ms,
    }
