"""The page: complete, by itself, and good to look at in a browser."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import matplotlib.image
import numpy as np
import numpy.typing as npt
import pytest

from barnabas.cli.main import run
from barnabas.report.chart_style import DARK, LIGHT, STAND_INS, Palette
from barnabas.report.page import FEW_ROWS, Report, make_report
from barnabas.report.table_reader import ReportError
from barnabas.report.terminal import summary_rows
from spark.conftest import unavailable
from spark.report_tables import all_tables, tenant, write_table

CHARTS = ["traffic", "latency", "quotas", "throttling", "shares", "advice", "clients"]
SECTIONS = ["traffic", "latency", "quotas", "noise", "advice", "clients", "dead-letters"]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
NEVER_CLOSED = {"meta", "br"}


class Outline(HTMLParser):
    """What there is on a page; an error for elements that do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.open: list[str] = []
        self.tags: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in NEVER_CLOSED:
            self.open.append(tag)
        for name, value in attributes:
            if name == "id":
                self.ids.append(value or "")
            if name in {"src", "href", "xlink:href", "data", "action", "poster", "srcset"}:
                self.addresses.append(value or "")

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if tag not in NEVER_CLOSED:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def colors_of(picture: Path) -> npt.NDArray[np.int64]:
    """The pixels, each as one number: 0xRRGGBB."""
    parts = (matplotlib.image.imread(picture)[..., :3] * 255).round().astype(np.int64)
    return parts @ np.array([0x10000, 0x100, 1])  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tables")
    all_tables(out)
    return out


@pytest.fixture(scope="module")
def report(tables: Path) -> Report:
    return make_report(tables, "Monday <1>")


@pytest.fixture(scope="module")
def page(report: Report) -> str:
    return report.html()


def test_the_page_needs_nothing_from_anywhere(page: str) -> None:
    assert re.findall(r"\w+://\S*", page) == []
    assert "@import" not in page
    assert re.findall(r"url\((?!#)", page) == []
    outline = Outline(page)
    assert outline.addresses
    assert all(address.startswith("#") for address in outline.addresses)
    # What is referred to is there, and each name is of one thing only.
    assert {address[1:] for address in outline.addresses} <= set(outline.ids)
    assert set(re.findall(r"url\(#([^)]+)\)", page)) <= set(outline.ids)
    assert len(set(outline.ids)) == len(outline.ids)
    assert not {"link", "img", "iframe", "object", "embed"} & set(outline.tags)


def test_every_section_has_what_it_is_about(report: Report, page: str) -> None:
    assert [section.name for section in report.sections] == SECTIONS
    assert [chart.name for chart in report.charts] == CHARTS
    assert all(section.missing is None for section in report.sections)
    assert page.count('<svg role="img"') == len(CHARTS)
    words = " ".join(Outline(page).words)
    for text in (
        "Monday <1>",
        "reports",
        "dashboard",
        "well-behaved",
        "confluent-kafka-python",
        "throttled",
    ):
        assert text in words
    assert "<title>Monday &lt;1&gt;</title>" in page


def test_colors_are_those_of_the_page_light_or_dark(page: str) -> None:
    charts = page[page.index("<svg") :]
    for name, color in STAND_INS.named().items():
        assert color not in page
        assert f"{name}:{LIGHT.named()[name]};" in page
        assert f"{name}:{DARK.named()[name]};" in page
    # Nothing but words on colored bars has a color of its own.
    assert set(re.findall(r"#[0-9a-f]{6}\b", charts)) <= {"#ffffff"}


def test_the_same_tables_make_the_same_page(tables: Path, page: str) -> None:
    assert make_report(tables, "Monday <1>").html() == page


def test_long_tables_can_be_unfolded(tmp_path: Path) -> None:
    write_table(tmp_path, "quotas", "tenants_1m", [tenant(f"t{one}") for one in range(FEW_ROWS)])
    assert "class=few" not in make_report(tmp_path).html()
    write_table(tmp_path, "quotas", "tenants_1m", [tenant("one more")])
    page = make_report(tmp_path).html()
    assert f">all {FEW_ROWS + 1} rows</button>" in page
    assert f"tr:nth-child(n+{FEW_ROWS + 1})" in page


def test_names_of_clients_are_only_names(tmp_path: Path) -> None:
    names = ["<script>alert(1)</script> &", "$\\frac{$", "_hidden", "\u9867\u5ba2", "%s{}"]
    rows = [tenant(name, produced_bytes=5.0) for name in names]
    write_table(tmp_path, "quotas", "tenants_1m", rows)
    made = make_report(tmp_path)
    outline = Outline(made.html())
    assert outline.tags.count("script") == 1
    for name in names:
        # In the chart about traffic, in the one about shares, and in the table.
        assert sum(name == words.strip() for words in outline.words) == 3, name
    made.write_pngs(tmp_path / "charts")


def test_what_is_missing_says_what_to_run(tmp_path: Path) -> None:
    write_table(tmp_path, "quotas", "tenants_1m", [tenant("orders")])
    made = make_report(tmp_path)
    missing = {section.name: section.missing for section in made.sections if section.missing}
    assert set(missing) == {"latency", "quotas", "advice", "clients"}
    assert f"barnabas pipeline run requests --once --out {tmp_path}" in missing["latency"]
    assert f"barnabas pipeline run quota-advice --out {tmp_path} --capacity" in missing["advice"]
    assert f"<code>barnabas pipeline run telemetry --once --out {tmp_path}</code>" in made.html()
    assert made.summary["clients"] is None


@pytest.mark.parametrize("pipeline", ["requests", "quotas", "telemetry", "quota-advice", "quota-dry-run"])
def test_each_pipeline_alone_makes_a_page(tables: Path, tmp_path: Path, pipeline: str) -> None:
    shutil.copytree(tables / pipeline, tmp_path / pipeline)
    made = make_report(tmp_path)
    Outline(made.html())
    assert made.charts
    assert made.summary["pipelines"] == [pipeline]


def test_charts_as_pictures(report: Report, tmp_path: Path) -> None:
    files = report.write_pngs(tmp_path / "charts")
    assert [file.name for file in files] == [f"{name}.png" for name in CHARTS]
    for file in files:
        pixels = colors_of(file)
        assert pixels.shape[1] > 1_000
        assert pixels[0, 0] == 0xFFFFFF, "a white ground"
        assert len(np.unique(pixels)) > 20


def test_the_command(
    tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    page, charts = tmp_path / "deep" / "page.html", tmp_path / "charts"
    assert run(["report", "--out", str(tables), "--html", str(page), "--png", str(charts), "--open"]) == 0
    shown = capsys.readouterr().out
    assert page.resolve().as_uri() in shown
    assert "reports (noisy)" in shown
    assert opened == [page.resolve().as_uri()]
    assert sorted(file.stem for file in charts.iterdir()) == sorted(CHARTS)
    assert page.read_text().startswith("<!DOCTYPE html>")


def test_the_command_in_numbers(
    tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["report", "--out", str(tables), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert list(tmp_path.iterdir()) == []
    assert summary["requests"] == 30
    assert (summary["produced_bytes"], summary["fetched_bytes"], summary["throttle_ms"]) == (100_000, 100_000, 800)
    assert summary["sampling"] == "all requests"
    assert [one["tenant"] for one in summary["tenants"]] == ["dashboard", "reports", "orders"]
    assert {one["who"]: one["verdict"] for one in summary["advice"]} == {"reports": "noisy", "orders": "well-behaved"}
    assert summary["dead_letters"] == 0
    rows = {row[0]: row[1:] for row in summary_rows(summary)}
    assert rows["reports (noisy)"] == ("90.00 kB", "0 B", "6 ms", "800 ms", "900 kB/s", "5.00 s")
    assert rows["dashboard"] == ("0 B", "100 kB", "-", "0", "-", "-")


def test_the_command_fails_with_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", "--out", str(tmp_path / "absent")]) == 1
    assert run(["report", "--out", str(tmp_path)]) == 1
    all_tables(tmp_path / "tables")
    (tmp_path / "file").write_text("")
    assert run(["report", "--out", str(tmp_path / "tables"), "--html", str(tmp_path / "file" / "page.html")]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("error: ") for line in lines)
    assert "there is no directory" in lines[0]
    assert "there are no tables" in lines[1]
    assert "the report cannot be written" in lines[2]
    with pytest.raises(ReportError):
        make_report(tmp_path / "absent")


@pytest.mark.parametrize(("scheme", "palette"), [(1, LIGHT), (0, DARK)], ids=["light", "dark"])
def test_the_page_in_a_browser(report: Report, tmp_path: Path, scheme: int, palette: Palette) -> None:
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        unavailable("no Chromium on this machine")
        return
    page, picture = tmp_path / "page.html", tmp_path / "page.png"
    report.write_html(page)
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
        f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1120,4600", f"--screenshot={picture}",
        f"--blink-settings=preferredColorScheme={scheme}", page.as_uri(),
    ]  # fmt: skip
    environment = {**os.environ, "HOME": str(tmp_path)}
    subprocess.run(command, check=True, capture_output=True, timeout=120, env=environment)
    pixels = colors_of(picture)
    assert pixels.shape[1] == 1120
    shades = set(np.unique(pixels).tolist())
    # The colors of the tenants and of the parts of the time are there, so the style sheet reaches the charts.
    for color in (*palette.parts, palette.series[0], palette.series[1], palette.ink, palette.alarm):
        assert int(color[1:], 16) in shades, color
    # Something is drawn all the way down to the last section, and nothing hangs over the right edge.
    drawn = np.nonzero((pixels != pixels[0, 0]).any(axis=1))[0]
    assert drawn[-1] > 2_500
    assert (pixels[:, -10:] == pixels[0, 0]).all()
