"""Builds and renders the report of ``barnabas quotas explain``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rich.text import Text

from barnabas.cli.console import CommandError, UsageError
from barnabas.cli.quota_output import amount_text, count_text, table
from barnabas.cli.quota_requests import HTTP_LISTENER, Parts, http_listener, read_usage
from barnabas.clients.common.blocking_client import BlockingClient
from barnabas.network.server.connection_limits import canonical_address
from barnabas.quota.explanation import Explanation, explain
from barnabas.quota.quota_entity import DEFAULT, QuotaEntity
from barnabas.quota.quota_type import ClientQuotaType
from barnabas.quota.sanitizer import sanitize
from barnabas.quota.usage import QuotaUsage

if TYPE_CHECKING:
    from rich.console import RenderableType


def explain_client(user: str, client_id: str, limits: Mapping[Parts, Mapping[str, float]]) -> dict[str, Any]:

    by_key: dict[str, dict[QuotaEntity, float]] = {kind.key: {} for kind in ClientQuotaType}
    for parts, values in limits.items():
        names = {kind: DEFAULT if name is None else name for kind, name in parts}
        if "ip" in names:
            continue
        for key, value in values.items():
            by_key.setdefault(key, {})[QuotaEntity(names.get("user"), names.get("client-id"))] = value

    def quota(key: str, explanation: Explanation) -> dict[str, Any]:
        tags = explanation.tags
        return {
            "key": key,
            "steps": [
                {"step": step.number, "place": step.entity.path, "limit": step.limit, "matched": step.matched}
                for step in explanation.steps
            ],
            "matched": None if explanation.match is None else str(explanation.match.entity),
            "why": explanation.reason,
            "limit": explanation.limit,
            "tags": None if tags is None else {"user": sanitize(tags.user), "client-id": tags.client_id},
        }

    return {
        "user": user,
        "client_id": client_id,
        "quotas": [quota(key, explain(found, user, client_id)) for key, found in by_key.items()],
    }


def explain_ip(ip: str, limits: Mapping[Parts, Mapping[str, float]]) -> dict[str, Any]:

    try:
        address = canonical_address(ip)
    except ValueError:
        raise UsageError(f"--ip must be an IP address: {ip!r}") from None
    key = "connection_creation_rate"
    by_name = {dict(parts)["ip"]: values.get(key) for parts, values in limits.items() if "ip" in dict(parts)}
    own = next((by_name[name] for name in by_name if name is not None and _canonical(name) == address), None)
    default = by_name.get(None)
    steps = [
        {"step": 1, "place": f"/config/ips/{address}", "limit": own, "matched": own is not None},
        {
            "step": 2,
            "place": "/config/ips/<default>",
            "limit": default,
            "matched": own is None and default is not None,
        },
    ]
    match = next((step for step in steps if step["matched"]), None)
    why = "neither the address nor the default has a limit"
    if match is not None:
        why = "the address has its own limit" if own is not None else "the address has no limit, so the default applies"
    return {
        "ip": address,
        "quotas": [
            {
                "key": key,
                "steps": steps,
                "matched": None if match is None else match["place"],
                "why": why,
                "limit": None if match is None else match["limit"],
                "tags": {"ip": address},
            }
        ],
    }


def _canonical(name: str) -> str:

    try:
        return canonical_address(name)
    except ValueError:
        return name


def _pages(client: BlockingClient, http: str | None) -> tuple[list[tuple[dict[str, Any], list[QuotaUsage]]], list[str]]:
    """Returns the usage pages of the brokers, and notes about brokers whose page cannot be read."""

    addresses: list[str] = []
    notes: list[str] = []
    if http is not None:
        addresses.append(http)
    else:
        for node in client.nodes().values():
            address = http_listener(client, node)
            if address is None:
                notes.append(
                    f"The usage on broker {node.id} is unknown: it has no HTTP endpoint (set {HTTP_LISTENER}, or use "
                    "barnabas start --http)."
                )
            elif address.endswith(":0"):
                notes.append(f"The HTTP endpoint of broker {node.id} uses a random port: name it with --http.")
            else:
                addresses.append(address)
    found: list[tuple[dict[str, Any], list[QuotaUsage]]] = []
    for address in addresses:
        try:
            page, usages = read_usage(address)
        except CommandError as error:
            if http is not None:
                raise
            notes.append(str(error))
            continue
        if page["callback"]:
            notes.append(
                f"Broker {page['node']} takes quotas from the callback {page['callback']}: these steps do not apply."
            )
        found.append((page, usages))
    return found, notes


def add_usage(
    report: dict[str, Any], client: BlockingClient, http: str | None, next_amounts: Mapping[str, float]
) -> None:
    """Adds to a report how much of each quota was used, and how long the next amounts would be throttled."""
    pages, report["notes"] = _pages(client, http)
    for quota in report["quotas"]:
        key, limit = quota["key"], quota["limit"]
        quota["usage"] = []
        quota["window"] = next((page["windows"][key] for page, _ in pages if key in page["windows"]), None)
        for page, usages in pages:
            usage = next((one for one in usages if one.key == key and one.tags == quota["tags"]), None)
            if usage is None and limit is not None and key in page["windows"]:
                usage = QuotaUsage.unused(key, limit, **page["windows"][key])
            if usage is not None:
                quota["usage"].append(_usage_report(page["node"], usage, next_amounts.get(key)))


def _usage_report(broker: int, usage: QuotaUsage, amount: float | None) -> dict[str, Any]:
    report = {
        "broker": broker,
        "usage": usage.usage,
        "is_token_bucket": usage.is_token_bucket,
        "window_ms": usage.window_ms,
        "limit": usage.limit,
        "throttled_now_ms": usage.throttle_ms,
        "mean_throttle_ms": usage.throttle_time_ms,
    }
    if amount is not None:
        after = usage.after(amount)
        report |= {"next": amount, "next_throttle_ms": after.throttle_ms}
    return report


# -- rendering


def explained(report: Mapping[str, Any]) -> Iterable[RenderableType]:

    if "ip" in report:
        yield Text.assemble("Address ", (report["ip"], "bold"))
    else:
        client = report["client_id"]
        yield Text.assemble(
            "User ", (report["user"], "bold"), ", ", ("client id " if client else "no client id"), (client, "bold")
        )
    for quota in report["quotas"]:
        key = quota["key"]
        yield Text()
        limit = "no limit" if quota["limit"] is None else amount_text(key, quota["limit"])
        yield Text.assemble((key, "bold cyan"), ": ", (limit, "bold"), f", because {quota['why']}")
        if quota["limit"] is None:
            continue
        yield Text(_window_text(key, quota["window"]))
        rows = [
            (
                str(step["step"]),
                step["place"].removeprefix("/config"),
                "-" if step["limit"] is None else amount_text(key, step["limit"]),
                "<- this one" if step["matched"] else "",
            )
            for step in quota["steps"]
        ]
        yield table(("step", "looked at", "limit", ""), rows)
        for usage in quota["usage"]:
            yield Text(_usage_text(key, usage))
    for note in report["notes"]:
        yield Text()
        yield Text(note, style="yellow")


def _window_text(key: str, window: Mapping[str, Any] | None) -> str:
    """Describes the averaging period: with a limit of 1 MB/s the first 2 MB are not necessarily throttled."""
    if window is None:
        return "  averaged over quota.window.num windows of quota.window.size.seconds each, see the broker's settings"
    samples, seconds = window["samples"], window["window_ms"] / 1_000
    if key == ClientQuotaType.CONTROLLER_MUTATION.key:
        return f"  a token bucket, which holds {samples * seconds:g} s of the limit"
    return f"  averaged over the last {samples * seconds:g} s ({samples} windows of {seconds:g} s)"


def _usage_text(key: str, usage: Mapping[str, Any]) -> str:
    if usage["is_token_bucket"]:
        now = f"{usage['usage']:,.1f} permits left"
    else:
        share = f" ({usage['usage'] / usage['limit']:.0%} of the limit)" if usage["limit"] else ""
        now = f"{amount_text(key, usage['usage'])}{share} over the last {usage['window_ms'] / 1_000:.1f} s"
    text = f"  broker {usage['broker']}: {now}"
    if usage["mean_throttle_ms"] is not None:
        text += f"; throttle time {usage['mean_throttle_ms']:,.0f} ms on average"
    if "next" in usage:
        delay = usage["next_throttle_ms"]
        cost = f"throttled for {delay:,} ms" if delay else "not throttled"
        text += f"\n  the next {count_text(key, usage['next'])} would be {cost}"
    return text
