"""``barnabas quotas``: shows, sets and explains quotas.

    barnabas quotas list
    barnabas quotas set --user alice producer_byte_rate=10MB consumer_byte_rate=20MB
    barnabas quotas set --default-client-id request_percentage=50
    barnabas quotas set --ip 192.0.2.7 connection_creation_rate=10
    barnabas quotas remove --user alice consumer_byte_rate
    barnabas quotas explain --user alice --client-id billing --bytes 4MB

``explain`` shows the eight places that a limit can come from and which one applies, the recent usage of the clients
that share it, and how long they would be throttled for the next bytes. Limits come from the metadata, over the Kafka
protocol, so any broker knows them. Usage is known only to the broker that measured it. That broker serves it on
``/quotas`` of its HTTP endpoint (``barnabas.http.listener``), which is found through the broker's settings, or named by
``--http``.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from barnabas.cli.arguments import ArgumentParser, add_command
from barnabas.cli.cluster import Cluster, add_cluster, connected
from barnabas.cli.console import CommandError, UsageError, say, shown

if TYPE_CHECKING:
    from barnabas.cli.arguments import Commands
    from barnabas.cli.quota_requests import Parts

ANONYMOUS: Final = "ANONYMOUS"
"""The user of connections to a listener without authentication."""
BYTE_RATES: Final = ("producer_byte_rate", "consumer_byte_rate")
DESCRIPTION: Final = "Shows, sets and explains quotas of users, client IDs and IP addresses."
EXPLANATION: Final = """\
Shows which limits apply to a client and why, how much it has used recently, and how long further requests would be
throttled. Usage is read from the brokers' HTTP endpoints, which are found through the brokers' settings."""


def add_quotas(commands: Commands) -> None:
    parser = commands.add_parser("quotas", help="show, set and explain quotas", description=DESCRIPTION)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", parser_class=ArgumentParser, required=True)

    listing = add_command(actions, "list", list_command, "show limits", "Shows all limits, or those of an entity.")
    _add_entity(listing)
    listing.add_argument("--json", dest="as_json", action="store_true", help="print JSON")

    setting = add_command(
        actions,
        "set",
        set_command,
        "set limits",
        "Sets limits of an entity. They apply from the next request on; past usage still counts.",
    )
    _add_entity(setting)
    setting.add_argument("limits", nargs="+", metavar="KEY=VALUE", help="for example producer_byte_rate=10MB")

    removing = add_command(actions, "remove", remove_command, "remove limits", "Removes limits of an entity.")
    _add_entity(removing)
    removing.add_argument("keys", nargs="*", metavar="KEY", help="the limits; default: all")

    explaining = add_command(actions, "explain", explain_command, "explain why a client is throttled", EXPLANATION)
    add_cluster(explaining)
    explaining.add_argument("-u", "--user", help=f"the principal's name, without User:; default: {ANONYMOUS}")
    explaining.add_argument("-c", "--client-id", help="the client ID")
    explaining.add_argument("--ip", help="an IP address, instead of user and client ID")
    explaining.add_argument(
        "-n", "--bytes", dest="amount", default="1MiB", help="the size of the next request; default: 1MiB"
    )
    explaining.add_argument("--partitions", type=int, default=1, help="the number of partitions to create; default: 1")
    explaining.add_argument("--http", metavar="HOST:PORT", help="the HTTP endpoint of the broker to ask")
    explaining.add_argument("--json", dest="as_json", action="store_true", help="print JSON")


def _add_entity(parser: ArgumentParser) -> None:
    """Adds the options that name an entity."""
    add_cluster(parser)
    parser.add_argument("-u", "--user", help="the principal's name, without User:")
    parser.add_argument("-c", "--client-id", help="the client ID")
    parser.add_argument("--ip", help="the IP address")
    parser.add_argument("--default-user", action="store_true", help="all users without their own quota")
    parser.add_argument("--default-client-id", action="store_true", help="all client IDs without their own quota")
    parser.add_argument("--default-ip", action="store_true", help="all addresses without their own quota")


def list_command(cluster: Cluster, as_json: bool, **entity: str | bool | None) -> None:
    """Prints all limits, or those of an entity."""
    from barnabas.cli.quota_output import amount_text, print_json, print_rich, table
    from barnabas.cli.quota_requests import describe_quotas

    parts = _entity(entity)
    with connected(cluster) as client:
        limits = describe_quotas(client, dict(parts))
    if as_json:
        print_json([{"entity": dict(whose), "quotas": values} for whose, values in limits.items()])
        return
    if not limits:
        _tell("The entity has no quotas." if parts else "There are no quotas.")
        return
    rows = [
        (_entity_text(whose), key, amount_text(key, value))
        for whose, values in sorted(limits.items(), key=repr)
        for key, value in sorted(values.items())
    ]
    print_rich(table(("entity", "quota", "limit"), rows))


def set_command(cluster: Cluster, limits: list[str], **entity: str | bool | None) -> None:
    """Sets limits of an entity."""
    from barnabas.cli.quota_output import amount_text, parse_amount
    from barnabas.cli.quota_requests import alter_quotas

    parts = _some_entity(entity)
    wanted: dict[str, float] = {}
    for limit in limits:
        key, equals, value = limit.partition("=")
        if not equals:
            raise UsageError(f"a limit must have the form key=value: {limit!r}")
        wanted[_known(key)] = parse_amount(value)
    with connected(cluster) as client:
        alter_quotas(client, parts, wanted)
    for name, amount in wanted.items():
        _tell(f"{_entity_text(parts)}: {name} is {amount_text(name, amount)}")


def remove_command(cluster: Cluster, keys: list[str], **entity: str | bool | None) -> None:
    """Removes limits of an entity."""
    from barnabas.cli.quota_requests import alter_quotas, describe_quotas

    parts = _some_entity(entity)
    with connected(cluster) as client:
        present = describe_quotas(client, dict(parts)).get(parts, {})
        wanted = [_known(key) for key in keys] if keys else sorted(present)
        missing = [key for key in wanted if key not in present]
        if missing or not wanted:
            raise CommandError(f"{_entity_text(parts)} has no {' and no '.join(missing) or 'quota'}")
        alter_quotas(client, parts, dict.fromkeys(wanted))
    for key in wanted:
        _tell(f"{_entity_text(parts)}: {key} removed")


def explain_command(
    cluster: Cluster,
    user: str | None,
    client_id: str | None,
    ip: str | None,
    amount: str,
    partitions: int,
    http: str | None,
    as_json: bool,
) -> None:
    """Prints which limits apply to a client and why, its usage, and the throttle time of further requests."""
    from barnabas.cli import quota_explanation as explanation
    from barnabas.cli.quota_output import parse_amount, print_json, print_rich
    from barnabas.cli.quota_requests import describe_quotas

    if ip is not None and (user is not None or client_id is not None):
        raise UsageError("--ip cannot be used with --user or --client-id: quotas of addresses are separate")
    if ip is None and user is None and client_id is None:
        raise UsageError("name the client: --user, --client-id or both, or --ip")
    next_amounts = dict.fromkeys(BYTE_RATES, parse_amount(amount)) | {
        "controller_mutation_rate": float(partitions),
        "connection_creation_rate": 1.0,
    }
    with connected(cluster) as client:
        limits = describe_quotas(client)
        report = (
            explanation.explain_client(user or ANONYMOUS, client_id or "", limits)
            if ip is None
            else explanation.explain_ip(ip, limits)
        )
        explanation.add_usage(report, client, http, next_amounts)
    if as_json:
        print_json(report)
    else:
        print_rich(*explanation.explained(report))


def _tell(text: str) -> None:
    say(f"{shown(text)}\n", sys.stdout)


# -- entities


def _entity(options: dict[str, str | bool | None]) -> Parts:
    """Returns the entity that the options name; without parts if they name none."""
    parts: dict[str, str | None] = {}
    for kind, option in (("user", "user"), ("client-id", "client_id"), ("ip", "ip")):
        name, is_default = options[option], options[f"default_{option}"]
        if name is not None and is_default:
            raise UsageError(f"--{kind} and --default-{kind} exclude each other")
        if name is not None or is_default:
            parts[kind] = None if name is None else str(name)
    if "ip" in parts and len(parts) > 1:
        raise UsageError("--ip cannot be combined with --user or --client-id")
    return tuple(sorted(parts.items()))


def _some_entity(options: dict[str, str | bool | None]) -> Parts:
    entity = _entity(options)
    if not entity:
        raise UsageError(
            "name the entity: --user, --client-id, --ip, --default-user, --default-client-id, --default-ip"
        )
    return entity


def _entity_text(entity: Parts) -> str:
    return ", ".join(f"default {kind}" if name is None else f"{kind} {name}" for kind, name in reversed(entity))


def _known(key: str) -> str:
    from barnabas.cli.quota_output import UNITS

    if key.strip() not in UNITS:
        raise UsageError(f"unknown quota {key!r}; known quotas: {', '.join(UNITS)}")
    return key.strip()
