"""The tree of commands: every ``--help`` can be read, and shells can complete all of it."""

from __future__ import annotations

import argparse
import inspect
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.cli.completion import CommandNode, bash, fish, walk, zsh
from barnabas.cli.main import COMMANDS, make_parser, run
from unit.cli.command_line import Terminal, environment

WIDTH = 100


def parsers(
    parser: argparse.ArgumentParser, path: tuple[str, ...] = ()
) -> dict[tuple[str, ...], argparse.ArgumentParser]:
    found = {path: parser}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, child in action.choices.items():
                found |= parsers(child, (*path, name))
    return found


TREE = parsers(make_parser())
LEAVES = {path: parser for path, parser in TREE.items() if parser.get_default("run") is not None}


EXPECTED = {
    "start": "", "container": "", "format": "", "produce": "", "consume": "", "secure": "", "report": "", "doctor": "",
    "completion": "",
    "topics": "list create describe alter delete delete-records",
    "groups": "list describe reset-offsets remove-members delete delete-offsets",
    "configs": "get set unset",
    "transactions": "list describe find-hanging abort fence",
    "cluster": "describe quorum features log-dirs",
    "perf": "produce consume",
    "quotas": "list set remove explain",
    "acls": "list add remove",
    "users": "list create alter delete",
    "tokens": "list create renew expire",
    "telemetry": "subscribe unsubscribe list tail",
    "pipeline": "list run show status init refresh convert",
    "generate": "compose systemd grafana prometheus",
}  # fmt: skip
"""The commands that users rely on, with their subcommands."""


def test_all_commands_are_there() -> None:
    found: dict[str, set[str]] = {}
    for name, *subcommands in LEAVES:
        found.setdefault(name, set()).update(subcommands)
    assert found == {name: set(subcommands.split()) for name, subcommands in EXPECTED.items()}


ONE_LINE = "says in a line for each thing what it has done; the exit code counts"
RUNS = "runs until it is stopped or done"
WRITES = "writes files, and names them"
WITHOUT_JSON = {
    ONE_LINE: {
        "format", "topics alter", "topics delete", "topics delete-records", "groups remove-members", "groups delete",
        "groups delete-offsets", "configs set", "configs unset", "transactions abort", "transactions fence",
        "quotas set", "quotas remove", "acls add", "acls remove", "users create", "users alter", "users delete",
        "tokens renew", "tokens expire", "telemetry subscribe", "telemetry unsubscribe", "pipeline convert",
    },
    RUNS: {"start", "container", "pipeline refresh"},
    WRITES: {
        "secure", "pipeline init", "completion", "generate compose", "generate systemd", "generate grafana",
        "generate prometheus",
    },
}  # fmt: skip
"""The commands that print no table, and why they need no JSON."""


def test_every_command_that_prints_a_table_prints_json() -> None:
    without = {" ".join(path): parser for path, parser in LEAVES.items() if "--json" not in parser.format_help()}
    assert set(without) == {name for names in WITHOUT_JSON.values() for name in names}
    for name, parser in without.items():
        assert "print_rich" not in inspect.getsource(parser.get_default("run")), f"{name} prints a table"


@pytest.mark.parametrize("path", TREE, ids=lambda path: " ".join(path) or "barnabas")
def test_help_reads_well(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    with pytest.raises(SystemExit) as ended:
        run([*path, "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: {' '.join(['barnabas', *path])} ")
    parser = TREE[path]
    assert parser.description, "says what it does"
    assert parser.description[0].isupper()
    sentence = parser.description.partition("\n\n")[0]
    assert sentence.endswith((".", ":")), "in a sentence"
    assert max(map(len, text.splitlines())) <= WIDTH + 20, "and in lines that fit"
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            assert all(choice.help and not choice.help.endswith(".") for choice in action._choices_actions)
        elif action.help is not argparse.SUPPRESS:
            assert action.help, f"{action.dest} is explained"
            assert "%(" not in action.help


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_commands_about_a_cluster_are_told_where_it_is_in_one_way(path: tuple[str, ...]) -> None:
    options = {name for action in LEAVES[path]._actions for name in action.option_strings}
    if path[0] in {"start", "container", "format", "secure", "completion", "generate", "pipeline", "report"}:
        return
    assert {"-b", "--bootstrap-server"} <= options
    shows = {
        "list",
        "describe",
        "get",
        "quorum",
        "features",
        "log-dirs",
        "find-hanging",
        "consume",
        "doctor",
        "explain",
    }
    if path[-1] in shows:
        assert "--json" in options


def test_a_command_loads_no_other() -> None:
    """``barnabas start`` is not to wait for the modules of commands that it is not."""
    code = (
        "import sys; from barnabas.cli.main import make_parser; make_parser('start');"
        "print(*[name for name in sys.modules if name.startswith(('barnabas.', 'rich', 'asyncio'))])"
    )
    out = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    loaded = set(out.stdout.split())
    assert "barnabas.cli.start" in loaded
    assert not loaded & {"barnabas.cli.topics", "barnabas.clients.admin", "rich", "asyncio"}


def test_help_loads_no_client() -> None:
    code = (
        "import sys; from barnabas.cli.main import make_parser; make_parser();"
        "print(*[name for name in sys.modules if name.startswith(('barnabas.clients', 'barnabas.network', 'rich'))])"
    )
    out = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert out.stdout.split() == []


def test_a_wrong_command_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topcis"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert "topics" in error, "what there is"
    assert error.count("\n") == 1


# -- completion


@pytest.fixture(scope="module")
def nodes() -> list[CommandNode]:
    return list(walk(make_parser()))


def completions(script: Path, *words: str) -> set[str]:
    """What bash offers for the last word."""
    program = (
        f"source {script}; COMP_WORDS=({' '.join(repr(word) for word in words)}); COMP_CWORD={len(words) - 1}; "
        '_barnabas; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    out = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True, timeout=180)
    assert not out.stderr
    return set(out.stdout.split())


def test_bash_completes_commands_and_options(tmp_path: Path, nodes: list[CommandNode]) -> None:
    script = tmp_path / "completion.bash"
    script.write_text(bash(nodes))
    assert set(COMMANDS) <= completions(script, "barnabas", "")
    assert completions(script, "barnabas", "top") == {"topics"}
    assert {"list", "create", "describe"} <= completions(script, "barnabas", "topics", "")
    assert completions(script, "barnabas", "groups", "reset-offsets", "billing", "--to-l") == {"--to-latest"}
    assert completions(script, "barnabas", "groups", "list", "--type", "") == {
        "classic",
        "consumer",
        "share",
        "streams",
    }
    assert completions(script, "barnabas", "topics", "list", "-b", "") == set(), "a value that nobody can guess"
    assert completions(script, "barnabas", "completion", "z") == {"zsh"}


def shell(name: str) -> str:
    program = shutil.which(name)
    if program is None:
        pytest.skip(f"there is no {name} here")
    return program


def test_fish_completes_commands_and_options(tmp_path: Path, nodes: list[CommandNode]) -> None:
    script = tmp_path / "completion.fish"
    script.write_text(fish(nodes))
    program = shell("fish")

    def offered(line: str) -> set[str]:
        command = [program, "--no-config", "-c", f"source {script}; complete -C '{line}'"]
        out = subprocess.run(command, capture_output=True, text=True, check=True, timeout=180)
        assert not out.stderr
        return {row.split("\t")[0] for row in out.stdout.splitlines()}

    assert set(COMMANDS) <= offered("barnabas ")
    assert offered("barnabas to") == {"topics"}
    assert {"list", "create", "describe"} <= offered("barnabas topics ")
    assert "list" not in offered("barnabas topics list "), "a command that is there already"
    assert offered("barnabas groups reset-offsets billing --to-l") == {"--to-latest"}
    assert offered("barnabas groups list --type ") == {"classic", "consumer", "share", "streams"}
    assert offered("barnabas topics list -b ") == set(), "a value that nobody can guess"
    assert offered("barnabas topics list -b host:9092 --js") == {"--json"}, "after an option with its value"
    assert offered(f"barnabas produce orders --file {tmp_path}/compl") == {str(script)}
    assert offered("barnabas completion z") == {"zsh"}


def test_zsh_completes_commands_and_options(tmp_path: Path, nodes: list[CommandNode]) -> None:
    """Typed into a terminal: zsh completes nowhere else."""
    script = tmp_path / "completion.zsh"
    script.write_text(zsh(nodes))
    ready = "autoload -Uz compinit && compinit -D && source " + str(script) + "; PS1='next'': '\n"
    with Terminal("-f", "-i", program=[shell("zsh")], env=environment(TERM="dumb", PS1="first: ")) as terminal:
        terminal.read_until("first: ")
        terminal.type_in(ready)
        terminal.read_until("next: ")
        for typed, shown in (
            ("barnabas to\t", "barnabas topics"),
            ("\t", r"delete-records +-- delete old records"),
            ("li\t", r"list"),
            ("--j\t", r"--json"),
            ("\x15barnabas groups reset-offsets billing --to-l\t", r"billing --to-latest"),
            ("\x15barnabas groups list --type \t", r"classic +consumer +share +streams"),
            ("\x15barnabas completion z\t", r"completion zsh"),
        ):
            terminal.text = ""
            terminal.type_in(typed)
            terminal.read_until(shown)
        assert "command not found" not in terminal.text
        terminal.type_in("\x15\x04")


def test_the_command_prints_the_script(nodes: list[CommandNode], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "bash"]) == 0
    assert capsys.readouterr().out == bash(nodes)
