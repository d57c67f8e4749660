"""Hooks of mkdocs: pages that are made from other files or from definitions, and links that lead out of ``docs``.

============================= =======================================================================================
``index.md``                  README.md
``changelog.md``              CHANGELOG.md
``contributing.md``           CONTRIBUTING.md
``notebooks/*.md``            the notebooks of examples/notebooks, with what they print
``reference/commands.md``     the help of every command
``reference/api-*.md``        the docstrings of the public classes (mkdocstrings; see api_docstrings.py)
``reference/*-settings.md``   the definitions of settings: type, default, valid values, how it can be changed
============================= =======================================================================================

A link to a file that is not a page of the site leads to the source (``[project.urls]`` in pyproject.toml).
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import posixpath
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from mkdocs.structure.files import File, Files

from barnabas.broker.config.absent_features import absent_feature
from barnabas.broker.config.broker_config_def import BROKER_CONFIG_DEF
from barnabas.broker.config.dynamic_config_names import update_mode
from barnabas.cli.main import make_parser
from barnabas.clients.admin.admin_config import CONFIG as ADMIN
from barnabas.clients.consumer.consumer_config import CONFIG as CONSUMER
from barnabas.clients.producer.producer_config import CONFIG as PRODUCER
from barnabas.common.config_def import ConfigKey, convert_to_string
from barnabas.log.config.log_config_def import LOG_CONFIG_DEF

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools import setting_differences

ROOT: Final = Path(__file__).resolve().parent.parent
COPIES: Final = {"index.md": "README.md", "changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}
PAGES: Final = {f"docs/{path.name}": path.name for path in (ROOT / "docs").glob("*.md")} | {
    source: page for page, source in COPIES.items()
}
"""The files that are pages of the site, by their path in the repository."""
SOURCE: Final = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Source"]
NOTEBOOKS: Final = ROOT / "examples" / "notebooks"
COLUMNS: Final = "96"
_LINK: Final = re.compile(r"\]\((?!https?://|#)([^)\s#]+)(#[^)\s]*)?\)")
_FENCE: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    """Adds the generated pages."""
    generated = {page: rebased((ROOT / source).read_text(encoding="utf-8"), source) for page, source in COPIES.items()}
    for notebook in sorted(NOTEBOOKS.glob("*.ipynb")):
        generated[f"notebooks/{notebook.stem}.md"] = notebook_page(notebook)
    generated["reference/commands.md"] = commands_page()
    generated["reference/broker-settings.md"] = settings_page(
        "Settings of brokers",
        BROKER_SETTINGS,
        BROKER_CONFIG_DEF.keys.values(),
        setting_differences.BROKER,
        is_broker=True,
    )
    generated["reference/topic-settings.md"] = settings_page(
        "Settings of topics", TOPIC_SETTINGS, LOG_CONFIG_DEF.keys.values(), {}, is_broker=False
    )
    for client, definition in CLIENTS.items():
        generated[f"reference/{client}-settings.md"] = settings_page(
            f"Settings of the {client.replace('-', ' ')}",
            CLIENT_SETTINGS,
            definition.keys.values(),
            setting_differences.CLIENTS[client],
            is_broker=False,
        )
    generated |= {f"reference/api-{name}.md": api_page(page) for name, page in API_PAGES.items()}
    for path, text in generated.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Makes links of a page of ``docs`` lead to pages of the site, or to the source."""
    if page.file.generated_by is not None:
        return markdown
    return rebased(markdown, f"docs/{page.file.src_uri}")


def rebased(markdown: str, source: str) -> str:
    """Returns the text of a file of the repository with its links as they are in the site.

    >>> rebased("[a](docs/cli.md#x) [b](src/barnabas) [c](docs/images/report.png)", "README.md").split()[:2]
    ['[a](cli.md#x)', '[b](https://barnabas.example/source/tree/main/src/barnabas)']
    """

    def replace(match: re.Match[str]) -> str:
        target, anchor = match[1], match[2] or ""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if path in PAGES:
            return f"]({PAGES[path]}{anchor})"
        if path.startswith("docs/images/"):
            return f"]({path.removeprefix('docs/')})"
        kind = "tree" if (ROOT / path).is_dir() else "blob"
        return f"]({SOURCE}/{kind}/main/{path}{anchor})"

    parts: list[str] = []
    end = 0
    for fence in _FENCE.finditer(markdown):  # brackets in code are no links
        parts += [_LINK.sub(replace, markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, _LINK.sub(replace, markdown[end:])])


def notebook_page(path: Path) -> str:
    """Returns a notebook as a page: text, code, and what the code prints (tests/system/test_notebooks.py stores it)."""
    address = f"{SOURCE}/blob/main/{path.relative_to(ROOT).as_posix()}"
    lines = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        lines += [text, ""] if cell["cell_type"] == "markdown" else ["```python", text, "```", ""]
        printed = "".join(line for output in cell.get("outputs", ()) for line in output["text"]).rstrip()
        if printed:
            lines += ["```text", printed, "```", ""]
    return "\n".join([*lines, f"This page is a notebook: [{path.name}]({address})."])


# ---------------------------------------------------------------------------------------------------- reference

CLIENTS: Final = {"producer": PRODUCER, "consumer": CONSUMER, "admin-client": ADMIN}
CLIENT_SETTINGS: Final = """\
Settings are keyword arguments with underscores, `KafkaProducer(bootstrap_servers="...", linger_ms=5)`, and have the
names, types and defaults of Apache Kafka's Java client, unless an entry says how it differs."""

BROKER_SETTINGS: Final = """\
The settings of a node, in `server.properties`, by `--override` or by `KAFKA_*` variables of a container. Names, types
and defaults are Apache Kafka's, unless an entry says how it differs; those that begin with `barnabas.` are our own.
*Read-only* settings need a restart.
*Per-broker* and *cluster-wide* ones can be changed while the broker runs, by `barnabas configs set`. Settings of
features that are not there yet are accepted, with a warning, unless they turn the feature on."""
TOPIC_SETTINGS: Final = """\
The settings of a topic, at its creation or by `barnabas configs set --topic NAME`. Their defaults are settings of the
broker. All of them can be changed at any time."""


def settings_page(
    title: str, text: str, keys: Iterable[ConfigKey], differences: Mapping[str, str], *, is_broker: bool
) -> str:
    lines = [f"# {title}", "", text, ""]
    for key in sorted(keys, key=lambda key: key.name):
        if key.internal:
            continue
        lines += [f"## `{key.name}`", "", key.documentation or "(No description.)", ""]
        facts = [f"type {code(key.type.name.lower())}", f"default {default_text(key)}"]
        if key.valid_values:
            facts.append(f"valid values {code(key.valid_values)}")
        facts.append(f"importance {key.importance.name.lower()}")
        if is_broker:
            facts.append(update_mode(key.name))
            absent = absent_feature(key.name)
            if absent is not None:
                facts.append(f"**no effect yet**, because there is no support for {absent}")
        lines += [" · ".join(facts), ""]
        if key.name in differences:
            lines += [f"**Differs from Apache Kafka.** {differences[key.name]}", ""]
        elif key.name in setting_differences.ONLY_HERE:
            lines += ["**Apache Kafka has no such setting.**", ""]
    return "\n".join(lines)


def default_text(key: ConfigKey) -> str:
    if not key.has_default:
        return "none, it must be set"
    text = convert_to_string(key.default, key.type)
    return "`null`" if text is None else code(text) or "empty"


def code(text: str) -> str:
    """Formats a value as code."""
    return f"`{text}`" if text else ""


class ApiPage(NamedTuple):
    """A page with the docstrings of modules."""

    title: str
    text: str
    names: Mapping[str, Sequence[str]]
    """By module. An empty list stands for all that is public."""


PRODUCER_MODULE: Final = "barnabas.clients.producer"
CONSUMER_MODULE: Final = "barnabas.clients.consumer"
API_PAGES: Final = {
    "embedded": ApiPage(
        "API of the embedded broker",
        "A broker inside this process, for tests and notebooks: `from barnabas import EmbeddedBroker`.",
        {"barnabas.embedded": ("EmbeddedBroker",)},
    ),
    "producer": ApiPage(
        "API of the producer",
        "Clients and records are in `barnabas`, all classes in `barnabas.clients.producer`. The keywords of a producer "
        "are [its settings](producer-settings.md); [clients](../clients.md) has examples.",
        {
            PRODUCER_MODULE: (
                "KafkaProducer",
                "AsyncKafkaProducer",
                "ProducerRecord",
                "RecordMetadata",
                "TableFuture",
                "TableMetadata",
                "PartitionOffsets",
                "TableSendError",
                "ConsumerGroupMetadata",
                "OffsetAndMetadata",
                "PreparedTxnState",
                "ProducerConfig",
            )
        },
    ),
    "consumer": ApiPage(
        "API of the consumer",
        "Clients are in `barnabas`, all classes in `barnabas.clients.consumer`. The keywords of a consumer are "
        "[its settings](consumer-settings.md); [clients](../clients.md) has examples.",
        {
            CONSUMER_MODULE: (
                "KafkaConsumer",
                "AsyncKafkaConsumer",
                "ConsumerRecord",
                "ConsumerRecords",
                "ConsumerRebalanceListener",
                "SubscriptionPattern",
                "ConsumerInterceptor",
                "CloseOptions",
                "GroupMembershipOperation",
                "IsolationLevel",
                "TopicPartition",
                "ConsumerConfig",
            )
        },
    ),
    "admin": ApiPage(
        "API of the admin client",
        "Clients are in `barnabas`, all classes in `barnabas.clients.admin`. The keywords of a client are "
        "[its settings](admin-client-settings.md); [clients](../clients.md) has examples.",
        {"barnabas.clients.admin": ()},
    ),
    "testing": ApiPage(
        "API for tests",
        "Fixtures for pytest, which are there as soon as the package is installed; clients without a broker; a cluster "
        "in memory, with failures that a test asks for.",
        {
            "barnabas.pytest_plugin": (
                "barnabas_broker",
                "barnabas_session_broker",
                "barnabas_secured_broker",
                "barnabas_overrides",
            ),
            PRODUCER_MODULE: ("MockProducer",),
            CONSUMER_MODULE: ("MockConsumer",),
            "barnabas.clients.testing": ("ScriptedCluster", "Fate", "Handled", "StoredRecord"),
        },
    ),
    "spark": ApiPage(
        "API for Spark",
        'Topics are DataFrames by `format("barnabas")`; [its options](../spark.md) are those of Spark\'s own. '
        "The import of `barnabas.spark` makes Spark use this interpreter, and a Java runtime where there is none.",
        {"barnabas.spark": ()},
    ),
    "errors": ApiPage(
        "Errors of clients",
        "All errors are a `barnabas.common.errors.BarnabasError`. That module has one class for each error code of the "
        "protocol, such as `NotEnoughReplicasError`, with `retriable`. These are the errors of clients themselves.",
        {f"{PRODUCER_MODULE}.errors": (), f"{CONSUMER_MODULE}.errors": ()},
    ),
}
SHOWN_ELSEWHERE: Final = {"barnabas.clients.admin": {"IsolationLevel", "OffsetAndMetadata", "TopicPartition"}}
"""Names of a module that another page shows."""


def api_page(page: ApiPage) -> str:
    lines = [f"# {page.title}", "", page.text, ""]
    seen: set[str] = set()
    for module, names in page.names.items():
        left_out = SHOWN_ELSEWHERE.get(module, set()) | seen
        for name in names or public_names(module):
            if name not in left_out:
                lines += [f"::: {module}.{name}", ""]
                seen.add(name)
    return "\n".join(lines)


def public_names(module: str) -> list[str]:
    """Returns the public names of a module: clients first, the ordinary one before the other, the rest by name."""
    names = importlib.import_module(module).__all__
    clients = {name for name in names if name.endswith("Client")}
    return sorted(names, key=lambda name: (name not in clients, name.startswith("Async"), name))


def commands_page() -> str:
    os.environ["COLUMNS"] = COLUMNS
    lines = ["# All commands", "", "The help of every command, as `--help` prints it.", ""]
    for path, parser in commands(make_parser(), ("barnabas",)):
        lines += [
            f"{'#' * min(len(path) + 1, 4)} {' '.join(path)}",
            "",
            "```text",
            parser.format_help().rstrip(),
            "```",
            "",
        ]
    return "\n".join(lines)


def commands(
    parser: argparse.ArgumentParser, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    yield path, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, child in action.choices.items():
                yield from commands(child, (*path, name))
