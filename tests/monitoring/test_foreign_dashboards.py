"""Dashboards that others have made for Kafka find what they ask for (`dashboards` has the table)."""

from __future__ import annotations

from pathlib import Path

import pytest

from monitoring.dashboards import DASHBOARDS, NOT_APPLICABLE
from monitoring.scrape import Scrape, selectors

APPLICABLE = {
    name: [line for line in text.strip().splitlines() if not line.startswith(tuple(NOT_APPLICABLE))]
    for name, text in DASHBOARDS.items()
}


@pytest.mark.parametrize("dashboard", DASHBOARDS)
def test_a_dashboard_is_filled(scrape: Scrape, dashboard: str) -> None:
    missing = [line for line in APPLICABLE[dashboard] for selector in selectors(line) if not scrape.matching(selector)]
    assert not missing


@pytest.mark.parametrize("prefix", NOT_APPLICABLE)
def test_what_does_not_apply_is_absent(scrape: Scrape, prefix: str) -> None:
    """A metric that is there belongs into the table of those that are tested."""
    assert not [name for name in scrape.samples if name.startswith(prefix)]


def test_the_lag_of_a_group(scrape: Scrape) -> None:
    def value(expression: str) -> float:
        (selector,) = selectors(expression)
        (sample,) = scrape.matching(selector)
        return sample.value

    group = 'consumergroup="readers",topic="orders"'
    assert value(f'kafka_consumergroup_current_offset{{{group},partition="0"}}') == 5
    assert value(f'kafka_consumergroup_lag{{{group},partition="0"}}') == 1
    assert value(f'kafka_consumergroup_lag{{{group},partition="1"}}') == 0
    assert value(f"kafka_consumergroup_lag_sum{{{group}}}") == 1
    assert value(f"kafka_consumergroup_current_offset_sum{{{group}}}") == 10
    assert value('kafka_consumergroup_members{consumergroup="readers"}') == 1
    assert value('kafka_topic_partition_current_offset{topic="orders",partition="0"}') == 6


def test_the_page_says_how_many_are_filled() -> None:
    page = (Path(__file__).parents[2] / "docs" / "monitoring.md").read_text()
    for selectors_of_one in APPLICABLE.values():
        assert f"| {len(selectors_of_one)} of {len(selectors_of_one)} |" in page
