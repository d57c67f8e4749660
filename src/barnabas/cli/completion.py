"""``barnabas completion``: prints completion scripts for shells.

    eval "$(barnabas completion bash)"                                # in ~/.bashrc
    eval "$(barnabas completion zsh)"                                 # in ~/.zshrc, after compinit
    barnabas completion fish > ~/.config/fish/completions/barnabas.fish

A script contains the whole tree of commands and options, taken from the parser, so pressing a key starts no process.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from barnabas.cli.arguments import add_command
from barnabas.cli.console import say

if TYPE_CHECKING:
    from barnabas.cli.arguments import Commands

DESCRIPTION: Final = """Prints a script with which a shell completes the commands and options of barnabas.

  eval "$(barnabas completion bash)"                                in ~/.bashrc
  eval "$(barnabas completion zsh)"                                 in ~/.zshrc, after compinit
  barnabas completion fish > ~/.config/fish/completions/barnabas.fish"""


def add_completion(commands: Commands) -> None:
    parser = add_command(commands, "completion", completion_command, "print a completion script", DESCRIPTION)
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")


def completion_command(shell: str) -> None:
    """Prints the completion script of a shell."""
    from barnabas.cli.main import make_parser  # it imports this module

    nodes = list(walk(make_parser()))
    say({"bash": bash, "zsh": zsh, "fish": fish}[shell](nodes), sys.stdout)


@dataclass(frozen=True, slots=True)
class Option:
    """An option with all its spellings."""

    names: tuple[str, ...]
    help: str
    choices: tuple[str, ...]
    takes_value: bool
    is_file: bool


@dataclass(frozen=True, slots=True)
class CommandNode:
    """A command or a group of commands, with its place in the tree."""

    path: tuple[str, ...]
    children: dict[str, str]
    """The subcommands with their descriptions."""
    options: tuple[Option, ...]
    words: tuple[str, ...]
    """The choices of positional arguments."""


def walk(parser: argparse.ArgumentParser, path: tuple[str, ...] = ()) -> Iterator[CommandNode]:
    """Yields the tree of commands, parents first."""
    children: dict[str, str] = {}
    below: dict[str, argparse.ArgumentParser] = {}
    options: list[Option] = []
    words: list[str] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            below = dict(action.choices)
            children = {one.dest: one.help or "" for one in action._choices_actions}
        elif action.option_strings:
            options.append(
                Option(
                    tuple(action.option_strings),
                    "" if action.help is None else action.help,
                    tuple(map(str, action.choices or ())),
                    action.nargs != 0,
                    action.metavar in {"FILE", "DIR"},
                )
            )
        else:
            words += map(str, action.choices or ())
    yield CommandNode(path, children, tuple(options), tuple(words))
    for name, child in below.items():
        yield from walk(child, (*path, name))


def bash(nodes: list[CommandNode]) -> str:
    """Returns a bash function with one case per command."""
    paths = [" ".join(node.path) for node in nodes if node.path]
    lines = [
        "# bash completion for barnabas",
        "_barnabas() {",
        "    local word previous path candidate index",
        "    word=${COMP_WORDS[COMP_CWORD]}",
        "    previous=${COMP_WORDS[COMP_CWORD-1]}",
        "    path=",
        "    for ((index = 1; index < COMP_CWORD; index++)); do",
        "        candidate=${path:+$path }${COMP_WORDS[index]}",
        '        case "$candidate" in',
        f"            {'|'.join(_quoted(path) for path in paths)}) path=$candidate ;;",
        "        esac",
        "    done",
        '    case "$path $previous" in',
    ]
    for option, patterns in _options_with_values(nodes):
        if option.choices:
            reply = f'COMPREPLY=($(compgen -W "{" ".join(option.choices)}" -- "$word"))'
        elif option.is_file:
            reply = 'COMPREPLY=($(compgen -f -- "$word"))'
        else:
            reply = "COMPREPLY=()"
        lines.append(f"        {patterns}) {reply}; return ;;")
    lines += ["    esac", '    case "$path" in']
    for node in nodes:
        names = [name for option in node.options for name in option.names]
        words = " ".join([*node.children, *node.words, *names])
        lines.append(f'        {_quoted(" ".join(node.path))}) COMPREPLY=($(compgen -W "{words}" -- "$word")) ;;')
    lines += ["    esac", "}", "complete -F _barnabas barnabas", ""]
    return "\n".join(lines)


def _options_with_values(nodes: list[CommandNode]) -> Iterator[tuple[Option, str]]:
    """Yields each option that takes a value, with a shell pattern for its command and names."""
    for node in nodes:
        for option in node.options:
            if option.takes_value:
                yield option, "|".join(_quoted(f"{' '.join(node.path)} {name}") for name in option.names)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def zsh(nodes: list[CommandNode]) -> str:
    """Returns a zsh function with a description of each word."""
    lines = [
        "#compdef barnabas",
        "_barnabas() {",
        "    local place candidate index  # not `path`, which is PATH",
        "    local -a choices",
        "    place=",
        "    for ((index = 2; index < CURRENT; index++)); do",
        '        candidate="${place:+$place }${words[index]}"',
        '        case "$candidate" in',
        f"            ({'|'.join(_quoted(' '.join(node.path)) for node in nodes if node.path)}) place=$candidate ;;",
        "        esac",
        "    done",
        '    case "$place ${words[CURRENT-1]}" in',
    ]
    for option, patterns in _options_with_values(nodes):
        if option.choices:
            reply = f"compadd -- {' '.join(map(_quoted, option.choices))}"
        elif option.is_file:
            reply = "_files"
        else:
            reply = "_message value"
        lines.append(f"        ({patterns}) {reply}; return ;;")
    lines += ["    esac", '    case "$place" in']
    for node in nodes:
        entries = [_described(name, text) for name, text in node.children.items()]
        entries += [_described(word, "") for word in node.words]
        entries += [_described(name, option.help) for option in node.options for name in option.names]
        lines.append(f"        ({_quoted(' '.join(node.path))}) choices=({' '.join(entries)}) ;;")
    lines += [
        "    esac",
        "    _describe 'barnabas' choices",
        "}",
        "compdef _barnabas barnabas",
        "",
    ]
    return "\n".join(lines)


def _described(name: str, text: str) -> str:
    plain = name.replace(":", "\\:")
    return _quoted(f"{plain}:{_one_line(text)}" if text else plain)


def _one_line(text: str) -> str:
    return " ".join(text.replace("%%", "%").split())


def fish(nodes: list[CommandNode]) -> str:
    """Returns one fish rule per word, with the condition under which it is offered."""
    lines = [
        "# fish completion for barnabas",
        "function __barnabas_path",
        "    set -l place",
        "    for word in (commandline -opc)[2..]",
        # -- is needed because a word may be an option; the quotes, because an empty list would join to no argument.
        '        switch (string join -- " " $place $word)',
        f"            case {' '.join(_quoted(' '.join(node.path)) for node in nodes if node.path)}",
        "                set place $place $word",
        "        end",
        "    end",
        '    test "$place" = "$argv"',
        "end",
        "complete -c barnabas -f",
    ]
    for node in nodes:
        condition = f"-n {_quoted('__barnabas_path ' + ' '.join(node.path))}".rstrip()
        for name, text in node.children.items():
            lines.append(f"complete -c barnabas {condition} -a {name} -d {_quoted(_one_line(text))}")
        lines += [f"complete -c barnabas {condition} -a {word}" for word in node.words]
        for option in node.options:
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
            value = ""
            if option.choices:
                value = f" -x -a {_quoted(' '.join(option.choices))}"
            elif option.is_file:
                value = " -r -F"
            elif option.takes_value:
                value = " -x"
            lines.append(f"complete -c barnabas {condition} {names}{value} -d {_quoted(_one_line(option.help))}")
    return "\n".join([*lines, ""])
