"""The dashboards and alert rules of ``deploy/``: valid, and about metrics that a broker has."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest

from monitoring.scrape import Scrape, selectors

yaml: Final[Any] = import_module("yaml")  # it has no types
REPOSITORY: Final = Path(__file__).parents[2]
DEPLOY: Final = REPOSITORY / "deploy"
PACKAGED: Final = REPOSITORY / "src" / "barnabas" / "deploy"
DASHBOARDS: Final = ("broker", "tenants")
OF_PROMETHEUS: Final = {"up"}
VARIABLES: Final = {"$__rate_interval": "5m", "$instance": ".*", "$topic": ".*", "$group": ".*"}
PANEL_TYPES: Final = {"row", "stat", "timeseries"}


def dashboard(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((DEPLOY / "grafana" / f"{name}.json").read_text())
    return loaded


def expanded(expression: str) -> str:
    """Returns an expression with values for the variables of Grafana."""
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    assert "$" not in expression, expression
    return expression


def expressions_of_dashboards() -> list[tuple[str, str]]:
    return [
        (f"{name}: {panel['title']}", expanded(target["expr"]))
        for name in DASHBOARDS
        for panel in dashboard(name)["panels"]
        for target in panel.get("targets", ())
    ]


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def without_conditions(scrape: Scrape, expression: str) -> list[str]:
    """Returns the selectors of an expression that select nothing."""
    return [
        f"{selector.name}{selector.matchers}"
        for selector in selectors(expression)
        if selector.name not in OF_PROMETHEUS and not scrape.matching(selector)
    ]


def test_every_panel_shows_something(scrape: Scrape) -> None:
    found = expressions_of_dashboards()
    assert len(found) > 60
    assert not {where: missing for where, text in found if (missing := without_conditions(scrape, text))}


def test_every_alert_is_about_a_metric_that_a_broker_has(scrape: Scrape) -> None:
    assert len(rules()) > 15
    assert not {rule["alert"]: missing for rule in rules() if (missing := without_conditions(scrape, rule["expr"]))}


def test_alerts_say_how_bad_it_is_and_what_it_is() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}, rule
        assert rule["annotations"]["summary"], rule
    assert len({rule["alert"] for rule in rules()}) == len(rules())


@pytest.mark.parametrize("name", DASHBOARDS)
def test_the_layout_of_a_dashboard(name: str) -> None:
    loaded = dashboard(name)
    assert {"uid", "title", "schemaVersion", "panels", "templating", "time"} <= loaded.keys()
    panels = loaded["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        assert panel["type"] in PANEL_TYPES
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
        if panel["type"] != "row":
            assert panel["targets"]
            assert panel["fieldConfig"]["defaults"]["unit"]
            refs = [target["refId"] for target in panel["targets"]]
            assert len(set(refs)) == len(refs)
            assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])


@pytest.mark.parametrize("name", DASHBOARDS)
def test_variables_of_a_dashboard_have_values(scrape: Scrape, name: str) -> None:
    for variable in dashboard(name)["templating"]["list"]:
        if variable["type"] == "query":
            found = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["definition"])
            assert found, variable
            label = found[2]
            assert label == "instance" or all(label in sample.labels for sample in scrape.samples[found[1]])


@pytest.mark.parametrize("path", ["grafana/broker.json", "grafana/tenants.json", "prometheus/alerts.yml",
                                  "prometheus/prometheus.yml"])  # fmt: skip
def test_the_package_has_the_same_files(path: str) -> None:
    assert (PACKAGED / path).read_bytes() == (DEPLOY / path).read_bytes()


def test_alerts_fire_when_they_should(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        if os.environ.get("CI") == "true":
            pytest.fail("promtool is not installed")
        pytest.skip("promtool is not installed (Debian: the package prometheus)")
    for file in (DEPLOY / "prometheus" / "alerts.yml", DEPLOY / "prometheus" / "prometheus.yml"):
        shutil.copy(file, tmp_path)
    shutil.copy(Path(__file__).with_name("alerts_test.yml"), tmp_path)
    for command in (["check", "config", "prometheus.yml"], ["test", "rules", "alerts_test.yml"]):
        line = [promtool, *command]
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
