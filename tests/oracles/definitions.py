"""Kafka's own message definitions, as its jars carry them."""

from __future__ import annotations

import json
import re
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

JARS = Path(__file__).resolve().parents[2] / "target" / "jars"
_RESOURCE = re.compile(r"(common/message|common/metadata|message)/\w+\.json")
# A comment may follow code on its line; a `//` inside a string is not one, so strings are matched first.
_STRING_OR_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*')


def schema_resources() -> dict[str, str]:
    """The text of every definition, comments and all, by the name of its file without the suffix."""
    texts: dict[str, str] = {}
    for jar in sorted(JARS.glob("kafka-*.jar")):
        with zipfile.ZipFile(jar) as archive:
            for entry in archive.namelist():
                if _RESOURCE.fullmatch(entry):
                    name = Path(entry).stem
                    if name in texts:
                        raise ValueError(f"{name} is defined twice, the second time in {jar.name}")
                    texts[name] = archive.read(entry).decode()
    return texts


def parse_definition(text: str) -> dict[str, Any]:
    """One definition, which is JSON with `//` comments."""
    definition: dict[str, Any] = json.loads(_STRING_OR_COMMENT.sub(lambda match: match[1] or "", text))
    return definition


@cache
def load_definitions() -> dict[str, dict[str, Any]]:
    """Every definition by the name it gives itself; empty where the jars are missing.

    Four APIs of the time before KRaft are still listed, with `"validVersions": "none"` and no class behind them.
    """
    return {definition["name"]: definition for definition in map(parse_definition, schema_resources().values())}
