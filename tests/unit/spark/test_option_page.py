"""The reference page docs/spark.md has every option, as its definition has it.

``BARNABAS_WRITE_DOCS=1 pytest tests/unit/spark/test_option_page.py`` writes the tables.
"""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from barnabas.clients.common.client_security import SECURITY
from barnabas.clients.producer.producer_config import CONFIG as PRODUCER
from barnabas.common.config_def import ConfigDef, ConfigKey
from barnabas.spark.client_settings import CONFIG, WITHOUT_EFFECT
from barnabas.spark.option_definitions import BOTH, SINK, SOURCE, Option
from barnabas.spark.sink_settings import REFUSED

PAGE = Path(__file__).resolve().parents[3] / "docs" / "spark.md"


def options(found: Sequence[Option]) -> str:
    rows = [
        f"| `{one.name}`{' (ours)' if one.is_ours else ''} | {'' if one.queries == BOTH else one.queries} "
        f"| {one.default} | {one.help} |"
        for one in found
    ]
    return "\n".join(["| option | only for | default | |", "|---|---|---|---|", *rows])


def settings(found: Iterable[ConfigKey]) -> str:
    rows = [
        f"| `{one.name}` | {default_of(one)} | {one.documentation} |"
        for one in sorted(found, key=lambda one: one.name)
        if not one.internal
    ]
    return "\n".join(["| setting | default | |", "|---|---|---|", *rows])


def default_of(key: ConfigKey) -> str:
    if not key.has_default or key.default is None or key.default in ("", ()):
        return ""
    value = key.default
    text = ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
    return f"`{text.lower() if isinstance(value, bool) else text}`"


def others(definition: ConfigDef, without: Iterable[str] = ()) -> list[ConfigKey]:
    """All settings but those of security, which have a table of their own."""
    left_out = {*SECURITY.keys, *without}
    return [key for name, key in definition.keys.items() if name not in left_out]


TABLES = {
    "source": options(SOURCE),
    "source settings": settings(others(CONFIG, WITHOUT_EFFECT)),
    "without effect": textwrap.fill(", ".join(f"`{name}`" for name in sorted(WITHOUT_EFFECT)) + ".", 120),
    "sink": options(SINK),
    "sink settings": settings(others(PRODUCER, REFUSED)),
    "security": settings(SECURITY.keys.values()),
}


@pytest.mark.parametrize("name", TABLES)
def test_the_page_has_all_options(name: str) -> None:
    text = PAGE.read_text()
    table = re.compile(rf"(<!-- generated: {name} -->\n)(.*?)(<!-- end -->)", re.DOTALL)
    found = table.search(text)
    assert found is not None
    expected = f"\n{TABLES[name]}\n\n"
    if os.environ.get("BARNABAS_WRITE_DOCS") == "1":
        PAGE.write_text(text[: found.start(2)] + expected + text[found.end(2) :])
        return
    assert found[2] == expected, "BARNABAS_WRITE_DOCS=1 writes the tables anew"


def test_every_option_has_a_meaning() -> None:
    for one in (*SOURCE, *SINK):
        assert one.help.endswith("."), one.name
    for key in (*others(CONFIG), *SECURITY.keys.values(), *others(PRODUCER, REFUSED)):
        assert key.documentation or key.internal, key.name
