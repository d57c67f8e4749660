"""``barnabas configs``: shows and changes settings of topics, brokers, groups and client metrics subscriptions.

barnabas configs get --topic orders
barnabas configs set --topic orders retention.ms=86400000
barnabas configs set --broker 1 log.cleaner.threads=2
barnabas configs unset --group billing consumer.session.timeout.ms
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.admin import add_common, administered, tell
from barnabas.cli.arguments import ArgumentParser, add_command
from barnabas.cli.console import CommandError, UsageError, say, shown

if TYPE_CHECKING:
    from barnabas.cli.arguments import Commands
    from barnabas.cli.cluster import Cluster
    from barnabas.clients.admin import AlterConfigOp, ConfigEntry, ConfigResource

DESCRIPTION: Final = "Shows and changes settings of topics, brokers and groups while they are in use."
GET: Final = """Shows settings that were set, or with --all also those with default values.

  barnabas configs get --topic orders --all
  barnabas configs get --broker 1 num.io.threads"""
SET: Final = """Changes the given settings and leaves the others unchanged.
KEY+=VALUE appends to a list, KEY-=VALUE removes from one.

  barnabas configs set --topic orders retention.ms=86400000
  barnabas configs set --topic orders cleanup.policy+=compact"""


def add_configs(commands: Commands) -> None:
    parser = commands.add_parser("configs", help="show and change settings", description=DESCRIPTION)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", parser_class=ArgumentParser, required=True)

    getting = add_command(actions, "get", get_command, "show settings", GET)
    _add_resource(getting)
    add_common(getting)
    getting.add_argument("names", nargs="*", metavar="KEY", help="only these settings")
    getting.add_argument(
        "-a", "--all", dest="everything", action="store_true", help="also settings with default values"
    )

    setting = add_command(actions, "set", set_command, "change settings", SET)
    _add_resource(setting)
    add_common(setting, json=False)
    setting.add_argument("changes", nargs="+", metavar="KEY=VALUE", help="for example retention.ms=86400000")
    setting.add_argument("--dry-run", action="store_true", help="only validate the change")

    unsetting = add_command(
        actions, "unset", unset_command, "reset settings", "Removes settings, so that their defaults apply."
    )
    _add_resource(unsetting)
    add_common(unsetting, json=False)
    unsetting.add_argument("names", nargs="+", metavar="KEY", help="the settings")
    unsetting.add_argument("--dry-run", action="store_true", help="only validate the change")


def _add_resource(parser: ArgumentParser) -> None:
    """Adds the options that select the resource."""
    group = parser.add_argument_group("resource")
    choice = group.add_mutually_exclusive_group(required=True)
    choice.add_argument("-t", "--topic", metavar="NAME", help="a topic")
    choice.add_argument("--broker", type=int, metavar="ID", help="a broker")
    choice.add_argument("--all-brokers", action="store_true", help="the cluster-wide default of all brokers")
    choice.add_argument("-g", "--group", metavar="ID", help="a group")
    choice.add_argument("--client-metrics", metavar="NAME", help="a client metrics subscription")


def _resource(
    topic: str | None, broker: int | None, all_brokers: bool, group: str | None, client_metrics: str | None
) -> ConfigResource:
    """Returns the resource that the options of `_add_resource` select."""
    from barnabas.clients.admin import ConfigResource

    if topic is not None:
        return ConfigResource.topic(topic)
    if group is not None:
        return ConfigResource.group(group)
    if client_metrics is not None:
        return ConfigResource.client_metrics(client_metrics)
    return ConfigResource.broker(None if all_brokers else broker)


def get_command(cluster: Cluster, names: list[str], everything: bool, as_json: bool, **selected: Any) -> None:
    """Prints settings."""
    from barnabas.cli.output import print_json, print_rich, table
    from barnabas.clients.admin import ConfigSource

    resource = _resource(**selected)
    with administered(cluster) as admin:
        entries = admin.describe_configs([resource], names=names or None)[resource]
    missing = [name for name in names if name not in entries]
    if missing:
        raise CommandError(f"{resource} has no setting {' and no setting '.join(missing)}")
    shown = [
        entry
        for _, entry in sorted(entries.items())
        if names or everything or entry.source not in {ConfigSource.DEFAULT_CONFIG, ConfigSource.STATIC_BROKER_CONFIG}
    ]
    if as_json:
        print_json(
            {
                entry.name: {
                    "value": entry.value,
                    "source": entry.source.name,
                    "read_only": entry.is_read_only,
                    "sensitive": entry.is_sensitive,
                }
                for entry in shown
            }
        )
    elif not shown:
        tell(f"{resource} has no settings of its own; use --all to show the effective values.")
    else:
        rows = [(entry.name, _value(entry), _source(entry)) for entry in shown]
        print_rich(table(("setting", "value", "from"), rows))


def _value(entry: ConfigEntry) -> str:
    if entry.is_sensitive:
        return "(hidden)"
    return "-" if entry.value is None else entry.value


def _source(entry: ConfigEntry) -> str:
    """
    >>> from barnabas.clients.admin import ConfigEntry, ConfigSource
    >>> _source(ConfigEntry("a", "1", ConfigSource.DYNAMIC_TOPIC_CONFIG))
    'topic'
    """
    return {
        "DYNAMIC_TOPIC_CONFIG": "topic",
        "DYNAMIC_BROKER_CONFIG": "broker",
        "DYNAMIC_DEFAULT_BROKER_CONFIG": "all brokers",
        "STATIC_BROKER_CONFIG": "server.properties",
        "DEFAULT_CONFIG": "default",
        "DYNAMIC_BROKER_LOGGER_CONFIG": "logger",
        "DYNAMIC_CLIENT_METRICS_CONFIG": "subscription",
        "DYNAMIC_GROUP_CONFIG": "group",
    }.get(entry.source.name, "unknown")


def set_command(cluster: Cluster, changes: list[str], dry_run: bool, **selected: Any) -> None:
    """Changes settings."""
    resource = _resource(**selected)
    wanted = [_parse_change(text) for text in changes]
    _warn_of_unknown(resource, [change.name for change in wanted])
    _alter(cluster, resource, wanted, dry_run)


def _warn_of_unknown(resource: ConfigResource, names: Sequence[str]) -> None:
    """Prints a warning for a name that looks like a misspelt one.

    Brokers accept any name, because plug-ins have settings of their own, so only this tells the user of a mistake.
    """
    known = _known_settings(resource)
    for name in names:
        if known and name not in known:
            from difflib import get_close_matches  # for mistakes only

            for close in get_close_matches(name, known, 1, 0.85):
                say(f"warning: there is no setting {shown(name)}; did you mean {close}?\n", sys.stderr)


def _known_settings(resource: ConfigResource) -> Collection[str]:
    """Returns the names of the settings that resources of this type have; none if they are not listed."""
    from barnabas.clients.admin import ConfigResourceType

    if resource.type is ConfigResourceType.TOPIC:
        from barnabas.log.config.log_config_def import LOG_CONFIG_DEF

        return LOG_CONFIG_DEF.keys
    if resource.type is ConfigResourceType.BROKER:
        from barnabas.broker.config.broker_config_def import BROKER_CONFIG_DEF

        return BROKER_CONFIG_DEF.keys
    return ()


def _parse_change(text: str) -> AlterConfigOp:
    from barnabas.clients.admin import AlterConfigOp, OpType

    key, equals, value = text.partition("=")
    if not equals or not key.strip("+- "):
        raise UsageError(f"a setting must have the form key=value: {text!r}")
    kinds = {"+": OpType.APPEND, "-": OpType.SUBTRACT}
    kind = kinds.get(key[-1], OpType.SET)
    return AlterConfigOp(key[:-1] if key[-1] in kinds else key, value, kind)


def unset_command(cluster: Cluster, names: list[str], dry_run: bool, **selected: Any) -> None:
    """Resets settings to their defaults."""
    from barnabas.clients.admin import AlterConfigOp, OpType

    resource = _resource(**selected)
    _alter(cluster, resource, [AlterConfigOp(name, None, OpType.DELETE) for name in names], dry_run)


def _alter(cluster: Cluster, resource: ConfigResource, changes: list[AlterConfigOp], dry_run: bool) -> None:
    from barnabas.clients.admin import OpType

    with administered(cluster) as admin:
        admin.incremental_alter_configs({resource: changes}, validate_only=dry_run)
    could = "could be " if dry_run else ""
    for change in changes:
        outcome = {
            OpType.SET: f"{could}set to {change.value}",
            OpType.DELETE: f"{could}reset to its default",
            OpType.APPEND: f"{could}extended by {change.value}",
            OpType.SUBTRACT: f"{could}reduced by {change.value}",
        }[change.op_type]
        tell(f"{resource}: {change.name} {outcome}")
