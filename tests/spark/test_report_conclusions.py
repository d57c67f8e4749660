"""The conclusions of a report: each rule, with data that it fires on and data that it does not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.main import run
from barnabas.report.clients import Client, ClientHealth
from barnabas.report.comparison import compare, read_earlier
from barnabas.report.conclusions import Conclusion, Level, draw_conclusions
from barnabas.report.data import ReportData, read_data
from barnabas.report.failures import Failures
from barnabas.report.latency import read_latency
from barnabas.report.page import make_report
from barnabas.report.table_reader import ReportError, TableReader
from barnabas.report.tenancy import TenantNames, find_nodes, parse_groups
from spark.report_tables import (
    MINUTE_US,
    START_US,
    advised,
    all_tables,
    counts,
    latency,
    tenant,
    tried,
    usage,
    write_table,
)


def conclusions(data: ReportData, rule: str) -> list[Conclusion]:
    return [one for one in draw_conclusions(data) if one.rule == rule]


def noisy_minute(out: Path, **more: Any) -> ReportData:
    """One tenant with most of the bytes, and two others."""
    write_table(
        out,
        "quotas",
        "tenants_1m",
        [
            tenant("reports", produced_bytes=9e6, requests=100.0, throttle_ms=15_800.0, throttled=9.0),
            tenant("orders", produced_bytes=5e5, requests=10.0, queue_ms=more.get("queue_ms", 0.5)),
            tenant("search", produced_bytes=5e5, requests=10.0, throttle_ms=more.get("throttle_ms", 0.0)),
        ],
    )
    if "advice" in more:
        write_table(out, "quota-advice", "limits", [advised("reports", "noisy", more["advice"], 2e6)])
    if "limit" in more:
        write_table(out, "quotas", "usage", [usage("reports", 0, 9e6, more["limit"], throttle_ms=15_800.0)])
    return read_data(TableReader(out), TenantNames())


def test_a_noisy_tenant_without_effect_on_others(tmp_path: Path) -> None:
    (found,) = conclusions(noisy_minute(tmp_path, advice=1_081_234.0), "noisy")
    assert found.level is Level.WARNING
    assert found.text == (
        "reports used 90 % of the bytes produced and was throttled for 15.8 s. orders and search were not affected."
    )
    assert [one.line for one in found.commands] == [
        "barnabas quotas set --client-id reports producer_byte_rate=1080000"
    ]


def test_a_noisy_tenant_that_others_wait_for_is_an_alarm(tmp_path: Path) -> None:
    (found,) = conclusions(noisy_minute(tmp_path, queue_ms=4_000.0), "noisy")
    assert found.level is Level.ALARM
    assert "requests of orders and search waited 200 ms on average for a handler" in found.text
    # There is no advice, so the command is the one that makes it.
    assert [one.line for one in found.commands] == [
        f"barnabas pipeline run quota-advice --out {tmp_path} --capacity producer_byte_rate=50MB"
    ]


def test_others_that_are_throttled_as_well(tmp_path: Path) -> None:
    (found,) = conclusions(noisy_minute(tmp_path, throttle_ms=5.0), "noisy")
    assert "Of the others search was throttled as well." in found.text


@pytest.mark.parametrize(
    ("limit", "sentence", "command"),
    [
        (5e6, "The limit of reports is 5.00 MB/s; the advice is 1.00 MB/s.", "quotas set --client-id reports"),
        (1.02e6, "The limit of reports is 1.02 MB/s, as advised.", "quotas explain --client-id reports"),
    ],
)
def test_a_noisy_tenant_with_a_limit(tmp_path: Path, limit: float, sentence: str, command: str) -> None:
    data = noisy_minute(tmp_path, advice=1e6, limit=limit)
    (found,) = conclusions(data, "noisy")
    assert sentence in found.text
    (shown,) = found.commands
    assert command in shown.line
    assert conclusions(data, "throttled") == [], "said once is enough"


def test_a_throttled_tenant_that_is_not_noisy(tmp_path: Path) -> None:
    write_table(tmp_path, "quotas", "usage", [usage("orders", 0, 2_940_123.0, 1e6, throttle_count=2, throttle_ms=70.0)])
    (found,) = conclusions(read_data(TableReader(tmp_path), TenantNames()), "throttled")
    assert found.text == (
        "orders was throttled 2 times, for 70 ms in all: its producer_byte_rate is 1.00 MB/s, its peak was 2.94 MB/s."
    )
    assert [one.line for one in found.commands] == ["barnabas quotas set --client-id orders producer_byte_rate=3000000"]
    # It is not let through where the advice calls it noisy.
    write_table(tmp_path, "quota-advice", "limits", [advised("orders", "noisy", 5e5, 3e6)])
    (found,) = conclusions(read_data(TableReader(tmp_path), TenantNames()), "throttled")
    assert "noisy, and limits it to 500 kB/s" in found.text
    assert [one.line for one in found.commands] == ["barnabas quotas set --client-id orders producer_byte_rate=500000"]


def failures(out: Path, api: str, **more: Any) -> ReportData:
    requests, failed, minutes = more["requests"], more["failed"], more.get("minutes", 1)
    sample_rate = more.get("sample_rate", 1.0)
    write_table(out, "requests", "latency_1h", [latency(api, "orders", "total", [1.0] * 3)] * (requests // 3))
    rows = [
        counts(api, "orders", requests // minutes, weight=requests / minutes / sample_rate,
               failed=failed / minutes / sample_rate, window_start=START_US + minute * MINUTE_US)
        for minute in range(minutes)
    ]  # fmt: skip
    write_table(out, "requests", "counts_1m", rows)
    return ReportData(TableReader(out), latency=read_latency(TableReader(out), TenantNames()))


@pytest.mark.parametrize(
    ("api", "numbers", "verdict"),
    [
        ("FindCoordinator", {"requests": 3, "failed": 1}, Failures.FEW),
        # One failure in a log with 1 % of all requests stands for a hundred, but it is one.
        ("Produce", {"requests": 300, "failed": 1, "sample_rate": 0.01}, Failures.FEW),
        ("JoinGroup", {"requests": 30, "failed": 15}, Failures.START_UP),
        ("JoinGroup", {"requests": 30, "failed": 15, "minutes": 3}, Failures.ALARM),
        ("Produce", {"requests": 300, "failed": 15}, Failures.ALARM),
    ],
)
def test_failures_are_judged_by_number_and_time(
    tmp_path: Path, api: str, numbers: dict[str, Any], verdict: Failures
) -> None:
    data = failures(tmp_path, api, **numbers)
    assert data.latency is not None
    assert [row.failures for row in (*data.latency.by_api, *data.latency.by_tenant)] == [verdict] * 2
    (found,) = conclusions(data, "failing")
    assert found.level is (Level.ALARM if verdict is Failures.ALARM else Level.NOTE)
    page = make_report(tmp_path).html()
    assert ('class="n alarm"' in page) is (verdict is Failures.ALARM)


def test_failures_that_go_on_name_the_errors_to_look_for(tmp_path: Path) -> None:
    (found,) = conclusions(failures(tmp_path, "Produce", requests=300, failed=15), "failing")
    assert found.text == "15 of 300 Produce requests of orders failed (5 %)."
    (command,) = found.commands
    assert command.line == (
        "barnabas consume __request_log --from-beginning --exit | "
        """grep '"api":"Produce"' | grep '"errors":{"'"""
    )


def test_one_of_three_is_shown_as_such(tmp_path: Path) -> None:
    failures(tmp_path, "FindCoordinator", requests=3, failed=1)
    page = make_report(tmp_path).html()
    assert ">1 of 3<" in page
    assert "33 %" not in page


def test_the_dry_run(tmp_path: Path) -> None:
    write_table(tmp_path, "quota-dry-run", "summary", [tried("reports", 5_000.0, 0.0), tried("orders", 0.0, 0.0)])
    write_table(
        tmp_path, "quota-advice", "limits",
        [advised("reports", "noisy", 9e5, 2e6), advised("orders", "well-behaved", 1.25e5, 1e5)],
    )  # fmt: skip
    (found,) = conclusions(read_data(TableReader(tmp_path), TenantNames()), "dry-run")
    assert found.text == "The limits of the dry run would have throttled reports for 5.00 s, and orders not at all."
    assert [one.line for one in found.commands] == ["barnabas quotas set --client-id orders producer_byte_rate=125000"]


@pytest.mark.parametrize(("time_ms", "level"), [(2.0, Level.NOTE), (900.0, Level.WARNING)])
def test_slow_requests_say_where_the_time_went(tmp_path: Path, time_ms: float, level: Level) -> None:
    rows = [latency("Produce", "orders", part, [time_ms] * 3) for part in ("local", "total")]
    write_table(tmp_path, "requests", "latency_1h", rows)
    (found,) = conclusions(read_data(TableReader(tmp_path), TenantNames()), "slow")
    assert found.level is level
    assert ("most of it in the handler" in found.text) is (level is Level.WARNING)


def test_clients_that_lose_records_and_dead_letters(tmp_path: Path) -> None:
    write_table(tmp_path, "requests", "dead_letters", [{"topic": "__request_log", "reason": "no value"}])
    data = read_data(TableReader(tmp_path), TenantNames())
    health = ClientHealth([Client("id", "orders", "barnabas", "0.2", {"errors": 4.0})], [], [])
    data = replace(data, clients=health)
    assert [one.text for one in conclusions(data, "client-errors")] == ["orders could not send 4 records."]
    assert [one.text for one in conclusions(data, "dead-letters")] == [
        "The pipelines could not use 1 record (requests), see Dead letters."
    ]


def test_a_quiet_day(tmp_path: Path) -> None:
    rows = [tenant(name, produced_bytes=1e6) for name in ("orders", "search")]
    write_table(tmp_path, "quotas", "tenants_1m", rows)
    data = read_data(TableReader(tmp_path), TenantNames())
    (found,) = draw_conclusions(data)
    assert (found.rule, found.level) == ("quiet", Level.GOOD)
    assert draw_conclusions(replace(data, traffic=None)) == []


def test_the_page_has_the_conclusions_on_top(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    all_tables(tmp_path / "tables")
    made = make_report(tmp_path / "tables")
    page = made.html()
    assert page.index('id="conclusions"') < page.index('id="traffic"')
    assert all(one["text"] for one in made.summary["conclusions"])
    assert run(["report", "--out", str(tmp_path / "tables"), "--html", str(tmp_path / "page.html")]) == 0
    shown = capsys.readouterr().out
    assert all(one.text in shown for one in made.conclusions)
    assert all(command.line in shown for one in made.conclusions for command in one.commands)


def test_a_broker_is_no_tenant_called_1(tmp_path: Path) -> None:
    rows = [counts("BrokerHeartbeat", "1", 5), counts("CreateTopics", "1", 1), counts("Produce", "2", 5)]
    write_table(tmp_path, "requests", "counts_1m", rows)
    write_table(tmp_path, "quotas", "tenants_1m", [tenant("1"), tenant("2")])
    tables = TableReader(tmp_path)
    assert find_nodes(tables) == {"1"}
    assert [one["tenant"] for one in make_report(tmp_path).summary["tenants"]] == ["2", "broker 1"]


def test_tenants_in_groups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [tenant(name, produced_bytes=5.0) for name in ("billing-1", "billing-2", "invoices", "shop")]
    write_table(tmp_path, "quotas", "tenants_1m", rows)
    made = make_report(tmp_path, groups=parse_groups(["finance=billing-*,invoices"]))
    assert {one["tenant"]: one["produced_bytes"] for one in made.summary["tenants"]} == {"finance": 15.0, "shop": 5.0}
    assert run(["report", "--out", str(tmp_path), "--json", "--group", "finance=b*"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert [one["tenant"] for one in summary["tenants"]] == ["finance", "invoices", "shop"]
    assert run(["report", "--out", str(tmp_path), "--group", "finance"]) == 2
    assert "a group must have the form NAME=PATTERN,...: 'finance'" in capsys.readouterr().err


def summary_of(traffic: dict[str, tuple[float, float, float]], seconds: int) -> dict[str, Any]:
    """Numbers of a report: bytes, throttle time and p99 by tenant."""
    return {
        "start_us": START_US,
        "end_us": START_US + seconds * 1_000_000,
        "tenants": [
            {"tenant": name, "produced_bytes": size, "fetched_bytes": 0.0, "throttle_ms": throttle_ms}
            for name, (size, throttle_ms, _) in traffic.items()
        ],
        "latency": [
            {"api": "Produce", "tenant": name, "p99_ms": p99} for name, (_, _, p99) in traffic.items()
        ],
    }  # fmt: skip


def test_changes_since_an_earlier_report(tmp_path: Path) -> None:
    # The earlier one is twice as long: amounts are compared per second.
    before = summary_of(
        {"steady": (2e6, 0.0, 2.0), "slower": (2e6, 0.0, 2.0), "more": (2e6, 0.0, 2.0), "gone": (2e6, 0.0, 2.0)}, 20
    )
    now = summary_of(
        {"steady": (1e6, 0.0, 2.4), "slower": (1e6, 9.0, 40.0), "more": (3e6, 0.0, 2.0), "new": (1e6, 0.0, 2.0)}, 10
    )
    found = compare(before, now)
    assert found is not None
    data = ReportData(None)  # type: ignore[arg-type]
    (said,) = [one for one in draw_conclusions(data, found) if one.rule == "compared"]
    parts = said.text.removeprefix("Since the earlier report: ").removesuffix(".").split("; ")
    assert sorted(parts) == [
        "gone is gone",
        "more moved 200 % more (300 kB/s)",
        "new is new",
        "slower is now throttled",
        "the p99 of Produce of slower went from 2 ms to 40 ms",
    ]
    (said,) = draw_conclusions(data, compare(now, now))
    assert said.text == "Since the earlier report: no large change."
    assert compare(before, {**now, "start_us": None}) is None


def test_the_command_compares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables, earlier, page = tmp_path / "tables", tmp_path / "earlier.json", tmp_path / "page.html"
    all_tables(tables)
    assert run(["report", "--out", str(tables), "--json"]) == 0
    earlier.write_text(capsys.readouterr().out)
    assert run(["report", "--out", str(tables), "--html", str(page), "--compare", str(earlier)]) == 0
    assert "Since the earlier report: no large change." in capsys.readouterr().out
    assert '<section id="changes">' in page.read_text()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: No such file or directory"),
        ("<html>", "is not JSON: .*; expected the output of barnabas report --json"),
        ("[]", "has no start_us and no end_us and no tenants and no latency"),
        ('{"start_us": 1}', "has no end_us and no tenants and no latency"),
    ],
)
def test_an_earlier_report_that_is_none(tmp_path: Path, content: str | None, message: str) -> None:
    file = tmp_path / "earlier.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ReportError, match=message):
        read_earlier(file)


def test_an_earlier_report_that_lacks_numbers() -> None:
    now = summary_of({"a": (1.0, 0.0, 1.0)}, 1)
    with pytest.raises(ReportError, match="the earlier report is incomplete: KeyError"):
        compare({**now, "tenants": [{"tenant": "a"}]}, now)


def test_noise_in_thread_time_matters_only_to_those_who_wait(tmp_path: Path) -> None:
    def found(queue_ms: float) -> list[Conclusion]:
        out = tmp_path / str(queue_ms)
        busy = tenant("asks", requests=1e6, thread_ms=50_000.0)
        others = [tenant(f"t{one}", produced_bytes=1e6, thread_ms=100.0, queue_ms=queue_ms) for one in range(3)]
        write_table(out, "quotas", "tenants_1m", [busy, *others])
        return conclusions(read_data(TableReader(out), TenantNames()), "noisy")

    assert found(0.0) == []
    assert [one.level for one in found(900.0)] == [Level.ALARM]
