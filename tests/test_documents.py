"""What the documents show works: every block of code in the quick start and in the page on clients is run."""

from __future__ import annotations

import builtins
import doctest
import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import confluent_kafka
import confluent_kafka.admin
import kafka
import pytest

import barnabas
from barnabas import EmbeddedBroker
from barnabas.cli.console import CommandError
from barnabas.cli.main import make_parser
from barnabas.clients.admin import AsyncKafkaAdminClient, KafkaAdminClient
from barnabas.clients.consumer import AsyncKafkaConsumer, KafkaConsumer
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from documents import ROOT, Block, blocks_of, is_test, run_program
from unit.cli.command_line import broker as started
from unit.cli.command_line import environment

QUICK_START: Final = "quickstart.md"
CLIENTS: Final = "clients.md"
MIGRATION: Final = "migration.md"
PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
WAIT_S: Final = 60
SETTINGS: Final = {
    # What the page says that two-phase commit needs.
    "transaction.two.phase.commit.enable": True,
    "unstable.api.versions.enable": True,
}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(overrides=SETTINGS) as running:
        yield running


def test_the_python_of_the_quick_start(broker: EmbeddedBroker) -> None:
    blocks = [block for block in blocks_of(QUICK_START) if block.heading != "Spark"]  # that is in tests/spark
    assert run_program(QUICK_START, blocks, broker.bootstrap_servers) == 4


def test_the_python_of_the_page_on_clients(broker: EmbeddedBroker) -> None:
    assert run_program(CLIENTS, blocks_of(CLIENTS), broker.bootstrap_servers) == 16


def test_the_python_of_the_page_on_migration(broker: EmbeddedBroker) -> None:
    assert run_program(MIGRATION, blocks_of(MIGRATION), broker.bootstrap_servers) == 1


OTHER_CLIENTS: Final = {
    "confluent-kafka": (confluent_kafka, confluent_kafka.admin),
    "kafka-python": (kafka,),
}


@pytest.mark.parametrize("library", OTHER_CLIENTS)
def test_the_calls_in_the_tables_on_migration_exist(library: str) -> None:
    text = (ROOT / "docs" / MIGRATION).read_text(encoding="utf-8")
    chapter = text.split(f"## {library}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)\.(\w+)` \| (?:`(\w+)\.(\w+)`)? \|", chapter, re.MULTILINE)
    assert len(rows) > 20
    for other, call, ours, ours_call in rows:
        found = next(getattr(module, other) for module in OTHER_CLIENTS[library] if hasattr(module, other))
        assert hasattr(found, call), f"{library} has no {other}.{call}"
        assert not ours or hasattr(getattr(barnabas, ours), ours_call), f"there is no {ours}.{ours_call}"


PINNED: Final = {
    "Kafka Connect": ("connect-pom.xml", "connect-runtime"),
    "Apache Flink": ("flink-pom.xml", "flink-streaming-java"),
    "Kafka Streams": ("streams-pom.xml", "kafka-streams"),
    "Java client": ("pom.xml", "kafka-clients"),
}


@pytest.mark.parametrize("program", PINNED)
def test_the_versions_of_programs_are_those_that_are_tested(program: str) -> None:
    file, artifact = PINNED[program]
    project = (ROOT / "tests" / "java" / file).read_text(encoding="utf-8")
    (version,) = re.findall(rf"<artifactId>{artifact}</artifactId><version>([^<]+)</version>", project)
    assert f"| {program} {version} | tested |" in (ROOT / "docs" / "works-with.md").read_text(encoding="utf-8")


def test_the_version_of_the_collector_is_the_one_that_is_tested() -> None:
    manifest = (ROOT / "tests" / "collector.yaml").read_text(encoding="utf-8")
    (version,) = re.findall(r"/kafkametricsreceiver v(\S+)", manifest)
    page = (ROOT / "docs" / "works-with.md").read_text(encoding="utf-8")
    assert f"| OpenTelemetry Collector {version}, its Kafka metrics receiver | tested" in page
    assert f"builder@v{version}" in (ROOT / "Makefile").read_text(encoding="utf-8")


def run_tests(directory: Path, count: int) -> None:
    """Runs the files with tests in a directory, all of which have to pass."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "error"]
    result = subprocess.run(
        command, cwd=directory, env=environment(), capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert f"{count} passed" in result.stdout, result.stdout + result.stderr


def test_the_tests_in_the_quick_start_pass(tmp_path: Path) -> None:
    tests = [block for block in blocks_of(QUICK_START) if is_test(block)]
    for number, block in enumerate(tests):
        (tmp_path / f"test_{number}.py").write_text(block.code)
    assert len(tests) == 2
    run_tests(tmp_path, len(tests))


RUN_BY: Final = {
    "README.md": ("tests/test_documents.py", {"python"}),
    "backup.md": ("tests/system/test_backup_page.py", {"sh"}),
    "cli.md": ("tests/unit/cli/test_cli_docs.py", {"console"}),
    "clients.md": ("tests/test_documents.py", {"python"}),
    "migration.md": ("tests/test_documents.py", {"python", "text"}),
    "operations.md": ("tests/test_documents.py", {"python"}),
    "protocol.md": ("tests/test_documents.py", {"python"}),
    "quickstart.md": ("tests/test_documents.py", {"console", "python", "text"}),
    "security.md": ("tests/security/test_security_page.py", {"ini", "properties", "python", "sh"}),
}
"""The pages whose blocks a test runs, that test, and the languages of those blocks."""
_MARKED_BLOCK: Final = re.compile(r"(?:<!-- not run: (.+) -->\n\n)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_of_code_is_run_or_says_why_not(page: Path) -> None:
    """A block without a language is to be read: a diagram, output, or commands (whose syntax is checked below)."""
    test, languages = RUN_BY.get(page.name, ("", set()))
    assert not test or page.name in (ROOT / test).read_text(encoding="utf-8"), f"{test} does not run {page.name}"
    for reason, language, code in _MARKED_BLOCK.findall(page.read_text(encoding="utf-8")):
        if reason:
            assert language, "a block without a language is not run anyway"
            if language == "python":
                compile(code, page.name, "exec")
        else:
            assert not language or language in languages, f"{page.name}: nothing runs this block: {code[:60]!r}"


def test_the_python_of_the_readme_and_of_the_page_on_operations(broker: EmbeddedBroker, tmp_path: Path) -> None:
    assert run_program("operations.md", blocks_of("operations.md"), broker.bootstrap_servers) == 1
    found = _MARKED_BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    with_fixture, program = (code for reason, language, code in found if language == "python" and not reason)
    exec(compile(program, "README.md", "exec"), {})
    (tmp_path / "test_readme.py").write_text(f"import confluent_kafka\n\n{with_fixture}")
    run_tests(tmp_path, 1)


def test_the_worked_example_of_the_page_on_the_protocol() -> None:
    examples = [block.code for block in blocks_of("protocol.md") if block.code.startswith(">>>")]
    names = {"HeartbeatRequest": HeartbeatRequest}
    # The last line of an example may be an error, cut off with dots; doctest wants its traceback.
    error = re.compile(r"^(\w+Error: .*), \.\.\.$", re.MULTILINE)
    text = error.sub(r"Traceback (most recent call last):\n\1...", "\n".join(examples))
    test = doctest.DocTestParser().get_doctest(text, names, "protocol.md", None, 0)
    assert len(test.examples) == 4
    flags = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
    assert doctest.DocTestRunner(optionflags=flags).run(test).failed == 0


# ---------------------------------------------------------------------------------------------------- commands


def commands_of(block: Block) -> list[tuple[str, str]]:
    """Each command of a block, and what it prints."""
    parts = re.split(r"^\$ (.*)\n", block.code, flags=re.MULTILINE)
    assert parts[0] == "", f"{QUICK_START}, line {block.line}: a block of commands begins with a command"
    return [(command, shown.strip("\n")) for command, shown in zip(parts[1::2], parts[2::2], strict=True)]


def test_the_commands_print_what_the_page_says(broker: EmbeddedBroker, tmp_path: Path) -> None:
    shim = tmp_path / "barnabas"
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} -m barnabas.cli.main "$@"\n')
    shim.chmod(0o755)
    env = environment(
        BARNABAS_BOOTSTRAP=broker.bootstrap_servers, NO_COLOR="1", PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    )
    ran = 0
    for block in blocks_of(QUICK_START):
        if block.language != "console" or block.heading == "A local broker":
            continue
        for command, shown in commands_of(block):
            result = subprocess.run(
                ["bash", "-o", "pipefail", "-c", command],
                env=env,
                capture_output=True,
                text=True,
                timeout=WAIT_S,
                check=False,
            )
            assert (result.stdout.strip("\n"), result.stderr) == (shown, ""), command
            ran += 1
    assert ran == 4


def test_a_broker_says_what_the_page_says(tmp_path: Path) -> None:
    """But for the log, and for where it is, as 9092 and the user's folder may be in use."""
    (block,) = (one for one in blocks_of(QUICK_START) if one.heading == "A local broker" and one.language == "console")
    ((command, shown),) = commands_of(block)
    assert command == "barnabas start"
    with started(tmp_path / "data") as terminal:
        terminal.read_until("Ctrl-C stops it")
        text = terminal.text
        terminal.interrupt()
        assert terminal.wait() == 0
    own = re.compile(
        r"(?<=bootstrap server  )\S+|(?<=data              )\S+|(?<=cluster id        )\S+|(?<=code              ).+"
    )
    assert own.sub("...", text[text.index("\nBarnabas") : text.index("it.") + 3]).strip("\n") == own.sub("...", shown)


def test_what_is_to_be_installed_is_there() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    pages = "\n".join((ROOT / "docs" / page).read_text(encoding="utf-8") for page in (QUICK_START, CLIENTS))
    named = set(re.findall(r"barnabas\[(\w+)\]", pages))
    assert named <= extras.keys()
    assert named == {"arrow", "spark", "security"}


def test_the_documents_name_the_version_that_they_describe() -> None:
    files = [*PAGES, ROOT / ".github" / "ISSUE_TEMPLATE" / "bug.yml"]
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    named = re.findall(r"[Bb]arnabas[ -]+(\d+\.\d+\.\d+)", text)
    assert len(named) > 6
    assert set(named) == {barnabas.__version__}
    (newest, *_) = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest == barnabas.__version__


# ---------------------------------------------------------------------------------------------------- names


def test_every_class_that_the_page_on_clients_names_exists() -> None:
    text = (ROOT / "docs" / CLIENTS).read_text(encoding="utf-8")
    modules = [
        importlib.import_module(f"barnabas.clients.{name}")
        for name in ("admin", "consumer", "producer", "consumer.errors", "producer.errors")
    ]
    modules.append(importlib.import_module("barnabas.common.errors"))
    for path in re.findall(r"`(barnabas(?:\.\w+)*\.[A-Z]\w+)`", text):
        module, _, name = path.rpartition(".")
        assert hasattr(importlib.import_module(module), name), path
    for name in re.findall(r"`([A-Z][a-z]\w+[A-Z]\w+)`", text):
        if name != "DataFrame" and not hasattr(builtins, name):
            assert any(hasattr(module, name) for module in modules), name


def table_methods(heading: str) -> set[str]:
    """The names in code type in the second column of a chapter's table."""
    text = (ROOT / "docs" / CLIENTS).read_text(encoding="utf-8")
    chapter = text.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = [line.split("|")[2] for line in chapter.splitlines() if line.startswith("| ")]
    return {name for row in rows for name in re.findall(r"`([a-z_]+)`", row)}


@pytest.mark.parametrize("client", [KafkaAdminClient, AsyncKafkaAdminClient])
def test_every_operation_of_the_table_exists_and_none_is_missing(client: type) -> None:
    not_operations = {"close", "submit", "with_timeout", "sync", "config"}
    public = {name for name in dir(client) if not name.startswith("_")} - not_operations
    assert table_methods("Administration") == public


@pytest.mark.parametrize("client", [KafkaConsumer, AsyncKafkaConsumer])
def test_every_method_of_the_consumer_that_is_named_exists(client: type) -> None:
    named = table_methods("Consuming") - {"for", "enable_auto_commit", "group_instance_id"}
    assert {name for name in named if not hasattr(client, name)} == set()
    assert len(named) > 20


OTHER_PAGES: Final = [
    ROOT / name for name in ("CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md", "deploy/README.md")
]


@pytest.mark.parametrize("page", [*PAGES, *OTHER_PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith("https://"):
            continue  # no test reaches beyond this machine
        path, _, anchor = target.partition("#")
        file = (page.parent / (path or page.name)).resolve()
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", one).strip().lower().replace(" ", "-") for one in headings}, target


def test_the_layers_are_those_that_are_enforced() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    enforced = [name for name in (layer.strip("()") for layer in layers) if importlib.util.find_spec(name) is not None]
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    chapter = text.split("## Layers\n")[1].split("\nTwo rules")[0]
    assert [name for line in chapter.splitlines() for name in re.findall(r"`(barnabas\.\w+)`", line)] == enforced


# ---------------------------------------------------------------------------------------------------- command lines


def command_lines() -> Iterator[tuple[str, list[str]]]:
    """Each call of ``barnabas`` in a block of a document, or by itself between backticks; its arguments."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        blocks = re.findall(r"^```\w*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        blocks = [block.replace("\\\n", " ") for block in blocks]  # one command on several lines
        calls = [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]
        calls = [piece.strip() for line in calls for piece in re.split(r" \| | > |&& | &$", line)]
        calls += re.findall(r"(?<!`)`(barnabas [a-z][^`]*)`(?!`)", text)
        for call in calls:
            if call.startswith("barnabas ") and not call.startswith("barnabas --"):
                yield f"{page.name}: {call}", shlex.split(call, comments=True)[1:]


def test_every_command_line_in_the_documents_is_one() -> None:
    refused = {}
    count = 0
    for place, arguments in command_lines():
        count += 1
        parser = make_parser(arguments[0])
        try:
            parser.parse_args(arguments)
        except CommandError as error:
            refused[place] = str(error)
    assert count > 50
    # What is named without what it needs, in a sentence.
    bare = {place: why for place, why in refused.items() if "required" in why}
    assert refused.keys() - bare.keys() == set(), refused
    assert all(place.count(" ") <= 3 for place in bare), bare
