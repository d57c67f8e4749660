"""The documentation site builds without a warning, has every page and setting, and loads nothing from elsewhere."""

from __future__ import annotations

import html
import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pytest
from tools import setting_differences

from barnabas.broker.config.broker_config_def import BROKER_CONFIG_DEF
from barnabas.cli.main import COMMANDS

ROOT: Final = Path(__file__).resolve().parents[2]
LIMIT_S: Final = 300


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs")
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(out)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout + done.stderr
    return out


def test_every_page_is_there_and_in_the_navigation(site: Path) -> None:
    first = (site / "index.html").read_text(encoding="utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        assert (site / f"{page.stem}.html").exists()
        assert f'href="{page.stem}.html"' in first


def test_notebooks_are_pages_with_what_they_print(site: Path) -> None:
    for notebook in (ROOT / "examples" / "notebooks").glob("*.ipynb"):
        text = (site / "notebooks" / f"{notebook.stem}.html").read_text(encoding="utf-8")
        assert "EmbeddedBroker" in text
        assert len(re.findall(r'<div class="highlight"', text)) > 6, "code, and what it prints"


def test_links_inside_the_site_lead_somewhere(site: Path) -> None:
    """Links and pictures: to a file, and to a heading or an entry of it where the link names one."""
    ids: dict[Path, set[str]] = {}
    checked = 0
    for page in site.rglob("*.html"):
        if page.name == "404.html":
            continue  # its links are those of a page at any depth
        for target in re.findall(r'(?:href|src)="(?!https?:|mailto:|data:)([^"]+)', page.read_text(encoding="utf-8")):
            path, _, anchor = html.unescape(target).partition("#")
            file = (page.parent / path).resolve() if path else page.resolve()
            assert file.exists(), f"{page.name}: {target}"
            if anchor:
                if file not in ids:
                    ids[file] = set(re.findall(r'(?:id|name)="([^"]+)"', file.read_text(encoding="utf-8")))
                assert unquote(anchor) in ids[file], f"{page.name}: {target}"
            checked += 1
    assert checked > 500


def test_the_reference_is_complete(site: Path) -> None:
    settings = (site / "reference" / "broker-settings.html").read_text(encoding="utf-8")
    missing = [key.name for key in BROKER_CONFIG_DEF.keys.values() if not key.internal and key.name not in settings]
    assert missing == []
    differing = [name for name in setting_differences.BROKER if not BROKER_CONFIG_DEF.keys[name].internal]
    assert settings.count("Differs from Apache Kafka.") == len(differing)
    producer = (site / "reference" / "producer-settings.html").read_text(encoding="utf-8")
    assert producer.count("Differs from Apache Kafka.") == len(setting_differences.CLIENTS["producer"])
    commands = (site / "reference" / "commands.html").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"barnabas {name}" not in commands] == []


PUBLIC: Final = ("barnabas", "clients.producer", "clients.consumer", "clients.admin", "spark")


@pytest.mark.parametrize("package", PUBLIC)
def test_the_reference_has_every_public_name(site: Path, package: str) -> None:
    """An entry without a docstring is left out, so each public method has one, or its twin has."""
    pages = "".join(path.read_text(encoding="utf-8") for path in (site / "reference").glob("api-*.html"))
    shown = {name for path in re.findall(r'id="(barnabas[\w.]+)"', pages) for name in endings(path)}
    module = importlib.import_module(package if package == "barnabas" else f"barnabas.{package}")
    wanted = {name for name in module.__all__ if name != "__version__"}
    classes = [found for name in wanted if isinstance(found := getattr(module, name), type)]
    wanted |= {
        f"{one.__name__}.{name}" for one in classes for name, member in vars(one).items() if is_shown(name, member)
    }
    assert wanted - shown == set()


def endings(path: str) -> tuple[str, str]:
    """Returns the last name of a path, and the last two."""
    parts = path.split(".")
    return parts[-1], ".".join(parts[-2:])


def is_shown(name: str, member: object) -> bool:
    is_method = inspect.isfunction(member) or isinstance(member, classmethod | staticmethod | property)
    return is_method and not name.startswith("_")


def test_entries_of_the_reference_link_to_each_other(site: Path) -> None:
    consumer = (site / "reference" / "api-consumer.html").read_text(encoding="utf-8")
    assert 'href="#barnabas.clients.consumer.KafkaConsumer.seek"' in consumer, "the asynchronous one refers to it"
    admin = (site / "reference" / "api-admin.html").read_text(encoding="utf-8")
    assert 'id="barnabas.clients.admin.AsyncKafkaAdminClient.create_topics"' in admin
    assert "operation" not in re.findall(r'<span class="n">(\w+)</span>', admin), "a parameter that callers do not pass"


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|link rel="stylesheet")[^>]*(?:src|href)="(https?://[^"]+)"', text)
        assert loaded == [], page.name
