"""``barnabas telemetry``: manages subscriptions to client metrics, and shows metrics as they arrive.

barnabas telemetry subscribe producers --metrics org.apache.kafka.producer. --interval 30s --match client_id=billing-.*
barnabas telemetry list
barnabas telemetry tail --client-id 'billing-.*'
barnabas telemetry unsubscribe producers
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.arguments import ArgumentParser, add_command
from barnabas.cli.cluster import Cluster, add_cluster, connected
from barnabas.cli.console import UsageError, say

if TYPE_CHECKING:
    from barnabas.cli.arguments import Commands
    from barnabas.clients.common.topic_tail import TailedRecord

DESCRIPTION: Final = """Clients push their metrics to the cluster if it subscribes to them (KIP-714). A subscription
selects clients, metrics and the push interval; the broker writes the metrics to the topic __client_telemetry."""
SUBSCRIBE: Final = """Creates a subscription to client metrics. If the subscription exists, the given settings are
changed and the others stay as they are.

  barnabas telemetry subscribe all
  barnabas telemetry subscribe java -m org.apache.kafka.consumer. --match client_software_name=apache-kafka-java"""
TAIL: Final = "Shows metrics as clients push them. Ctrl-C stops it."

POLL_MS: Final = 500
_DURATION: Final = re.compile(r"(\d+)(ms|s|m|h)?")
_MILLISECONDS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}


def add_telemetry(commands: Commands) -> None:
    parser = commands.add_parser("telemetry", help="subscribe to client metrics", description=DESCRIPTION)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", parser_class=ArgumentParser, required=True)

    subscribing = add_command(actions, "subscribe", subscribe_command, "create or change a subscription", SUBSCRIBE)
    _add_name(subscribing)
    subscribing.add_argument(
        "-m",
        "--metrics",
        action="append",
        metavar="PREFIX",
        help="metrics with this prefix; may be repeated; default of a new subscription: all metrics",
    )
    subscribing.add_argument("-i", "--interval", metavar="TIME", help="the push interval, such as 500ms, 30s or 5m")
    subscribing.add_argument(
        "--match",
        action="append",
        metavar="NAME=PATTERN",
        help="only clients whose client_id, client_instance_id, client_software_name, client_software_version, "
        "client_source_address or client_source_port matches; may be repeated, then all must match",
    )

    unsubscribing = add_command(
        actions, "unsubscribe", unsubscribe_command, "delete a subscription", "Deletes a subscription."
    )
    _add_name(unsubscribing)

    listing = add_command(actions, "list", list_command, "show subscriptions", "Shows all subscriptions.")
    add_cluster(listing)
    listing.add_argument("--json", dest="as_json", action="store_true", help="print JSON")

    tailing = add_command(actions, "tail", tail_command, "show metrics as they arrive", TAIL)
    add_cluster(tailing)
    tailing.add_argument("-c", "--client-id", metavar="PATTERN", help="only clients whose client ID matches")
    tailing.add_argument("-m", "--metrics", metavar="PREFIX", default="", help="only metrics with this prefix")
    tailing.add_argument("--from-beginning", action="store_true", help="also metrics that were pushed before")
    tailing.add_argument("-n", "--count", type=int, metavar="N", help="stop after this number of pushes")
    tailing.add_argument("--json", dest="as_json", action="store_true", help="one JSON document per push and line")


def _add_name(parser: ArgumentParser) -> None:
    add_cluster(parser)
    parser.add_argument("name", help="the subscription")


def subscribe_command(
    cluster: Cluster, name: str, metrics: list[str] | None, interval: str | None, match: list[str] | None
) -> None:
    """Creates or changes a subscription."""
    from barnabas.cli.telemetry_requests import alter_subscription, subscriptions

    wanted: dict[str, str] = {}
    if metrics is not None:
        wanted["metrics"] = ",".join(metrics)
    if interval is not None:
        wanted["interval.ms"] = str(parse_duration(interval))
    if match is not None:
        wanted["match"] = ",".join(match)
    with connected(cluster) as client:
        is_new = name not in subscriptions(client)
        if is_new:
            wanted.setdefault("metrics", "*")
        if not wanted:
            raise UsageError(f"subscription {name} exists; give --metrics, --interval or --match to change it")
        alter_subscription(client, name, dict(wanted))
    settings = ", ".join(f"{key}={value}" for key, value in sorted(wanted.items()))
    say(f"{name}: {'subscribed' if is_new else 'changed'}, {settings}\n", sys.stdout)


def unsubscribe_command(cluster: Cluster, name: str) -> None:
    """Deletes a subscription."""
    from barnabas.cli.console import CommandError
    from barnabas.cli.telemetry_requests import alter_subscription, subscriptions

    with connected(cluster) as client:
        if name not in subscriptions(client):
            raise CommandError(f"subscription {name} does not exist")
        alter_subscription(client, name, dict.fromkeys(("metrics", "interval.ms", "match")))
    say(f"{name}: unsubscribed\n", sys.stdout)


def list_command(cluster: Cluster, as_json: bool) -> None:
    """Prints all subscriptions."""
    from barnabas.cli.quota_output import print_json, print_rich, table
    from barnabas.cli.telemetry_requests import describe_subscriptions

    with connected(cluster) as client:
        found = describe_subscriptions(client)
    if as_json:
        print_json([{"name": name, **settings} for name, settings in found.items()])
    elif not found:
        say("There are no subscriptions: clients push no metrics.\n", sys.stdout)
    else:
        rows = [
            (
                name,
                "\n".join(settings["metrics"]),
                duration_text(settings["interval.ms"]),
                "\n".join(settings["match"]) or "all clients",
            )
            for name, settings in sorted(found.items())
        ]
        print_rich(table(("subscription", "metrics", "every", "of"), rows))


def tail_command(
    cluster: Cluster, client_id: str | None, metrics: str, from_beginning: bool, count: int | None, as_json: bool
) -> None:
    """Prints metrics as they arrive."""
    from barnabas.clients.common.topic_tail import TopicTail
    from barnabas.common.topic_names import CLIENT_TELEMETRY_TOPIC

    try:
        pattern = re.compile(client_id or ".*", re.DOTALL)
    except re.error as error:
        raise UsageError(f"--client-id must be a regular expression: {client_id!r}: {error}") from None
    shown = 0
    with connected(cluster) as client:
        tail = TopicTail(client, CLIENT_TELEMETRY_TOPIC, from_beginning=from_beginning)
        while count is None or shown < count:
            for tailed in tail.poll(POLL_MS):
                push = read_push(tailed, metrics)
                if pattern.fullmatch(push["client_id"] or "") and (count is None or shown < count):
                    _show(push, as_json)
                    shown += 1


def read_push(tailed: TailedRecord, prefix: str = "") -> dict[str, Any]:
    """Decodes a record of ``__client_telemetry``: its headers, and the metrics whose names have the prefix."""
    from barnabas.common.errors import InvalidRecordError
    from barnabas.telemetry.otlp import decode_metrics

    record = tailed.record
    push: dict[str, Any] = {
        name: None if value is None else bytes(value).decode("utf-8", "replace") for name, value in record.headers
    }
    push.setdefault("client_id", None)
    push |= {"partition": tailed.partition, "offset": record.offset, "metrics": []}
    try:
        points = decode_metrics(bytes(record.value or b""))
    except InvalidRecordError as error:
        push["problem"] = str(error)
        return push
    push["metrics"] = [
        {
            "name": point.name,
            "kind": point.kind,
            "value": point.value,
            "count": point.count,
            "temporality": point.temporality,
            "attributes": {**point.resource, **point.attributes},
            "time_unix_nano": point.time_unix_nano,
        }
        for point in points
        if point.name.startswith(prefix)
    ]
    return push


def _show(push: dict[str, Any], as_json: bool) -> None:
    import json

    if as_json:
        say(json.dumps(push, default=str) + "\n", sys.stdout)
        return
    from datetime import UTC, datetime

    from rich.text import Text

    from barnabas.cli.quota_output import print_rich, table

    when = datetime.fromtimestamp(int(push.get("received_ms") or 0) / 1_000, UTC).isoformat(timespec="milliseconds")
    software = f"{push.get('client_software_name')} {push.get('client_software_version')}"
    source = f"{push.get('client_source_address')}:{push.get('client_source_port')}"
    last = ", its last push" if push.get("terminating") == "true" else ""
    head = f"{when}  {push['client_id']}  {software}  {source}  {push.get('principal')}{last}"
    rows = [
        (metric["name"], _value_text(metric), " ".join(f"{key}={value}" for key, value in metric["attributes"].items()))
        for metric in push["metrics"]
    ]
    problem = [Text(push["problem"], "red")] if "problem" in push else []
    print_rich(Text(head, "bold"), *problem, *([table(("metric", "value", "of"), rows)] if rows else []))


def _value_text(metric: dict[str, Any]) -> str:
    value = "-" if metric["value"] is None else f"{metric['value']:,g}"
    return value if metric["count"] is None else f"{value} in {metric['count']:,}"


def parse_duration(text: str) -> int:
    """Parses a duration; returns milliseconds.

    >>> parse_duration("500ms"), parse_duration("30s"), parse_duration("5m"), parse_duration("250")
    (500, 30000, 300000, 250)
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"a duration must have a form such as 500ms, 30s or 5m: {text!r}")
    return int(match[1]) * _MILLISECONDS[match[2] or "ms"]


def duration_text(milliseconds: int) -> str:
    """
    >>> duration_text(300_000), duration_text(30_000), duration_text(1_500)
    ('5m', '30s', '1500ms')
    """
    for unit in ("h", "m", "s"):
        if milliseconds >= _MILLISECONDS[unit] and milliseconds % _MILLISECONDS[unit] == 0:
            return f"{milliseconds // _MILLISECONDS[unit]}{unit}"
    return f"{milliseconds}ms"
