"""The page: complete, by itself, and good to look at in a browser."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import matplotlib.image
import numpy as np
import numpy.typing as npt
import pytest

from barnabas.cli.main import run
from barnabas.report import page_assets
from barnabas.report.chart import TimeChart
from barnabas.report.cluster_state import ClusterState, GroupLag, TopicState
from barnabas.report.page import FEW_ROWS, Report, make_report
from barnabas.report.page_assets import UPLOT_SHA256, UPLOT_VERSION, asset
from barnabas.report.palette import DARK, LIGHT, Palette
from barnabas.report.table_reader import ReportError
from barnabas.report.terminal import summary_rows
from browser import Browser, find_browser, running_browser
from spark.conftest import unavailable
from spark.report_tables import all_tables, tenant, write_table

CHARTS = ["traffic", "latency", "quotas", "throttling", "shares", "advice", "clients"]
SECTIONS = ["traffic", "topics", "latency", "quotas", "noise", "advice", "clients", "dead-letters"]
NEVER_CLOSED = {"meta", "br", "wbr"}
CLUSTER = ClusterState(
    [TopicState("orders", 12, 4_200_000, 3_400_000_000), TopicState("__consumer_offsets", 50, 310, 52_000)],
    [
        GroupLag("billing", "orders", "Empty", 0, 12, 81_300, 9_100, is_abandoned=True),
        GroupLag("barnabas-pipeline-requests", "__request_log", "Empty", 0, 3, 1_200, 700, is_abandoned=False),
        GroupLag("shipping", "orders", "Stable", 3, 12, 0, 0, is_abandoned=False),
    ],
)


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
    return make_report(tables, "Monday <1>", cluster=CLUSTER)


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
    assert re.findall(r'<figure class="\w+" data-chart="(\w+)"', page) == CHARTS
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
    for name, color in LIGHT.named().items():
        assert f"--{name}:{color};" in page
        assert f"--{name}:{DARK.named()[name]};" in page
    # Charts have names of colors only.
    main = page[page.index("<main>") : page.index("</main>")]
    assert set(re.findall(r"#[0-9a-f]{6}\b", main)) == set()


@pytest.mark.parametrize("name", UPLOT_SHA256)
def test_uplot_is_the_published_one(name: str) -> None:
    file = Path(page_assets.__file__).parent / "assets" / name
    assert hashlib.sha256(file.read_bytes()).hexdigest() == UPLOT_SHA256[name]


def test_the_license_of_uplot_is_in_the_page(page: str) -> None:
    assert f"uPlot {UPLOT_VERSION}" in page
    assert "Copyright (c) 2022 Leon Sorokin" in page
    assert "Permission is hereby granted, free of charge" in page
    assert f"v{UPLOT_VERSION}" in asset("uPlot.iife.min.js")[:100]


def test_the_same_tables_make_the_same_page(tables: Path, page: str) -> None:
    assert make_report(tables, "Monday <1>", cluster=CLUSTER).html() == page


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
    page = made.html()
    outline = Outline(page)
    charts = [chart for chart in made.charts if isinstance(chart, TimeChart)]
    assert outline.tags.count("script") == 1 + len(charts)
    data = [json.loads(text) for text in re.findall(r'<script type="application/json">(.*?)</script>', page)]
    assert [one["name"] for one in data] == [chart.name for chart in charts]
    for name in names:
        assert name in [line["name"] for line in data[0]["panels"][0]["lines"]]
        # In the legend of the chart about shares, and in the table.
        assert sum(name == words.strip() for words in outline.words) == 2, name
    made.write_pngs(tmp_path / "charts")


def test_what_is_missing_says_what_to_run(tmp_path: Path) -> None:
    write_table(tmp_path, "quotas", "tenants_1m", [tenant("orders")])
    made = make_report(tmp_path)
    missing = {section.name: section.missing for section in made.sections if section.missing}
    assert set(missing) == {"topics", "latency", "quotas", "advice", "clients"}
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


def test_names_of_clients_are_only_names_in_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    names = ["[red]loud[/red]", "[/]", "bell\x1b[31m"]
    write_table(tmp_path, "quotas", "tenants_1m", [tenant(name, produced_bytes=5.0) for name in names])
    assert run(["report", "--out", str(tmp_path), "--html", str(tmp_path / "page.html")]) == 0
    shown = capsys.readouterr().out
    assert "[red]loud[/red]" in shown
    assert " [/] " in shown
    assert "\x1b" not in shown


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


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    executable = find_browser()
    if executable is None:
        unavailable("no Chromium on this machine")
        return
    with running_browser(executable, tmp_path_factory.mktemp("browser")) as started:
        yield started


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize(("scheme", "palette"), [("light", LIGHT), ("dark", DARK)], ids=["light", "dark"])
def test_the_page_in_a_browser(
    browser: Browser, report: Report, tmp_path: Path, width: int, scheme: str, palette: Palette
) -> None:
    page, picture = tmp_path / "page.html", tmp_path / "page.png"
    report.write_html(page)
    browser.open(page, width, scheme=scheme)
    browser.write_png(picture)
    assert browser.complaints == []
    assert browser.run("document.documentElement.scrollWidth") == width, "the page is wider than the window"
    panels = [panel for chart in report.charts if isinstance(chart, TimeChart) for panel in chart.panels]
    assert browser.run("document.querySelectorAll('figure.times canvas').length") == len(panels)
    texts = "[...document.querySelectorAll('main *')].map(one => parseFloat(getComputedStyle(one).fontSize))"
    assert browser.run(f"Math.min(...{texts})") >= 11, "text that is too small to read"
    shades = set(np.unique(colors_of(picture)).tolist())
    # The colors of the tenants and of the parts of the time are there, so the style sheet reaches the charts.
    for color in (*palette.parts, palette.series[0], palette.series[1], palette.ink, palette.alarm):
        assert int(color[1:], 16) in shades, color


def test_charts_follow_the_size_of_the_window(browser: Browser, report: Report, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    report.write_html(page)
    browser.open(page, 1280)
    width = "document.querySelector('.uplot').getBoundingClientRect().width"
    wide = browser.run(width)
    resized = "new Promise(done => addEventListener('resize', () => requestAnimationFrame(done), {once: true}))"
    browser.run(f"window.resized = {resized}; 0")
    browser.call("Emulation.setDeviceMetricsOverride", width=500, height=900, deviceScaleFactor=1, mobile=False)
    browser.run("window.resized")
    assert browser.run(width) < 500 < wide
    assert browser.run("document.documentElement.scrollWidth") == 500


def test_charts_respond_to_pointer_and_keys(browser: Browser, report: Report, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    report.write_html(page)
    browser.open(page, 1280)
    box = browser.run(
        "(() => {const over = document.querySelector('.u-over'); over.scrollIntoView({block: 'center'});"
        "const box = over.getBoundingClientRect(); return [box.left + box.width / 2, box.top + box.height / 2]})()"
    )
    browser.move(box[0] - 5, box[1])
    browser.move(*box)
    # The middle of the first chart: orders sent 1,000 bytes in each second, reports 9,000.
    shown = browser.run("document.getElementById('tip').innerText")
    assert re.search(r"reports\s+9 kB/s\s+orders\s+1 kB/s", shown), shown
    browser.move(1, 1)
    assert browser.run("document.getElementById('tip').hidden") is True
    # The same with the keyboard: the first step.
    browser.run("document.querySelector('.plot').focus()")
    browser.press("ArrowLeft", 37)
    for _ in range(12):
        browser.press("ArrowLeft", 37)
    assert "15:00:00 UTC" in browser.run("document.getElementById('tip').innerText")
    # A click on a name hides its series, and the stack shrinks.
    top = "document.querySelector('figure.times')"
    browser.run(f"{top}.querySelector('.legend button').click()")
    assert browser.run(f"{top}.querySelector('.legend button').getAttribute('aria-pressed')") == "false"
    assert browser.complaints == []


def test_tables_are_sorted_from_the_keyboard(browser: Browser, report: Report, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    report.write_html(page)
    browser.open(page, 360)
    names = "[...document.querySelectorAll('#traffic tbody tr')].map(row => row.cells[0].textContent)"
    assert browser.run(names) == ["dashboard", "reports", "orders"]
    browser.run("document.querySelectorAll('#traffic th button')[0].focus()")
    browser.press("Enter", 13, "\r")
    assert browser.run(names) == ["dashboard", "orders", "reports"]
    # On a phone the table is cut: a sign says so until the end is reached.
    cut = "document.querySelector('#traffic .scroll').classList.contains('cut')"
    assert browser.run(cut) is True
    browser.run(
        "new Promise(done => {const box = document.querySelector('#traffic .scroll');"
        "box.addEventListener('scroll', () => setTimeout(done), {once: true}); box.scrollLeft = 9999})"
    )
    assert browser.run(cut) is False


def test_print_is_light(browser: Browser, report: Report, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    report.write_html(page)
    browser.open(page, 1280, scheme="dark")
    browser.run(
        "window.seen = []; addEventListener('beforeprint', () => window.seen.push(getComputedStyle("
        "document.documentElement).getPropertyValue('--ink'), document.querySelector('.uplot').offsetWidth))"
    )
    browser.write_pdf(tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
    assert browser.run("window.seen") == [LIGHT.ink, 680]
    assert browser.run("document.documentElement.dataset.theme") is None
