"""What the documents show works: each block of code in a Markdown file is run by a test, or says why it is not."""

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
from barnabas.broker.config.broker_config_def import BROKER_CONFIG_DEF
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
FOLDERS: Final = (".github", "benchmarks", "deploy", "docs", "examples", "src")
PAGES: Final = [*sorted(ROOT.glob("*.md")), *(page for name in FOLDERS for page in sorted((ROOT / name).rglob("*.md")))]
"""Every Markdown file of the project."""
WAIT_S: Final = 180
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
    "README.md": ("tests/test_documents.py", {"console", "python"}),
    "docs/backup.md": ("tests/system/test_backup_page.py", {"sh"}),
    "docs/cli.md": ("tests/unit/cli/test_cli_docs.py", {"console"}),
    "docs/clients.md": ("tests/test_documents.py", {"python"}),
    "docs/migration.md": ("tests/test_documents.py", {"python"}),
    "docs/monitoring.md": ("tests/test_documents.py", {"properties"}),
    "docs/operations.md": ("tests/test_documents.py", {"python"}),
    "docs/protocol.md": ("tests/test_documents.py", {"python"}),
    "docs/quickstart.md": ("tests/test_documents.py", {"console", "python"}),
    "docs/security.md": ("tests/security/test_security_page.py", {"ini", "properties", "python", "sh"}),
    # The file is copied into projects of users, so it has no comments about our tests.
    "src/barnabas/spark/pipelines/project_files/README.md": ("tests/spark/test_declared_project.py", {"console"}),
}
"""The pages whose blocks a test runs, that test, and the languages of those blocks."""
_MARKED_BLOCK: Final = re.compile(r"(?:<!-- not run: ([^\n]+) -->\n\n)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FENCE: Final = re.compile(r"^ *(?:```|~~~)(.*)$", re.MULTILINE)
_COMMAND: Final = re.compile(r"^(?:\$ |(?:barnabas|docker|make|pip|python3?) \S)", re.MULTILINE)


def relative(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_every_block_of_code_is_run_or_says_why_not(page: Path) -> None:
    """A block of ``text`` is to be read: a picture, a list of files, or what the block before it prints."""
    text = page.read_text(encoding="utf-8")
    test, languages = RUN_BY.get(relative(page), ("", set()))
    assert not test or page.name in (ROOT / test).read_text(encoding="utf-8"), f"{test} does not run {page.name}"
    for opening in _FENCE.findall(text)[::2]:
        assert re.fullmatch(r"[a-z]+", opening), f"{page.name}: a block needs a language, not {opening!r}"
    for reason, language, code in _MARKED_BLOCK.findall(text):
        if language == "text":
            assert not reason, "text is not run anyway"
            assert not _COMMAND.search(code), f"{page.name}: commands are no text: {code[:60]!r}"
        elif reason:
            if language == "python":
                compile(code, page.name, "exec")
        else:
            assert language in languages, f"{page.name}: nothing runs this block: {code[:60]!r}"


def test_the_settings_of_the_page_on_monitoring() -> None:
    (block,) = (block for block in blocks_of("monitoring.md") if block.language == "properties")
    settings = dict(line.split("=", 1) for line in block.code.splitlines())
    assert len(settings) == 2
    for name, value in settings.items():
        BROKER_CONFIG_DEF.parse_value(name, value)


def test_the_targets_and_extras_that_pages_name_exist() -> None:
    """In commands: ``make TARGET``, and ``pip install 'barnabas[EXTRA]'``."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named, extras = set(), set()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        named |= set(re.findall(r"(?:^\$ |^|`)make ([a-z-]+)(?=[ `\n])", text, re.MULTILINE))
        extras |= {one for group in re.findall(r"(?:barnabas|'\.)\[([\w,]+)\]", text) for one in group.split(",")}
    assert len(named) > 8
    assert named - targets == set()
    assert extras - project["optional-dependencies"].keys() == set()


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


@pytest.mark.parametrize(("page", "heading"), [("../README.md", "A look"), (QUICK_START, "A local broker")])
def test_a_broker_says_what_the_page_says(tmp_path: Path, page: str, heading: str) -> None:
    """But for the log, and for where it is, as 9092 and the user's folder may be in use."""
    (block,) = (one for one in blocks_of(page) if one.heading == heading and one.language == "console")
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
    files = [*(page for page in PAGES if page.name != "CHANGELOG.md"), ROOT / ".github" / "ISSUE_TEMPLATE" / "bug.yml"]
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


@pytest.mark.parametrize("page", PAGES, ids=relative)
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
        if page.name == "CHANGELOG.md":
            continue  # it shortens: topics|groups|configs
        text = page.read_text(encoding="utf-8")
        blocks = re.findall(r"^```\w*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        blocks = [block.replace("\\\n", " ") for block in blocks]  # one command on several lines
        calls = [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]
        calls = [piece.strip() for line in calls for piece in re.split(r" \| | > |&& | &$", line)]
        calls += re.findall(r"(?<!`)`(barnabas [a-z][^`]*)`(?!`)", text)
        for call in calls:
            if call.startswith("barnabas ") and not call.startswith("barnabas --"):
                yield f"{relative(page)}: {call}", shlex.split(call, comments=True)[1:]


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
