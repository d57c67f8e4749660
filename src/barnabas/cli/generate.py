"""``barnabas generate``: writes files that deploy or watch a broker, for installations without the repository.

    barnabas generate compose                 compose.yml in this directory
    barnabas generate systemd --out /etc/systemd/system
    barnabas generate grafana                 dashboards for Grafana
    barnabas generate prometheus              scrape configuration and alert rules

The files are data of this package (``barnabas/deploy``), the same as in ``deploy/`` of the repository.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.cli.arguments import ArgumentParser, add_command
from barnabas.cli.console import CommandError, UsageError, reason, say

if TYPE_CHECKING:
    from barnabas.cli.arguments import Commands

DESCRIPTION: Final = "Writes files that deploy or watch a broker. They are a start: change them as you need."


class Artefact(NamedTuple):
    """Something that can be generated: its files in ``barnabas/deploy``, and what to do with them."""

    summary: str
    files: tuple[str, ...]
    next_step: str


ARTEFACTS: Final = {
    "compose": Artefact(
        "a compose file for one node",
        ("compose/compose.yml",),
        "docker compose up --detach (build the image first, see docs/deployment.md)",
    ),
    "systemd": Artefact(
        "a hardened systemd unit, and settings for it",
        ("systemd/barnabas.service", "systemd/server.properties"),
        "put server.properties into /etc/barnabas, then: systemctl enable --now barnabas",
    ),
    "grafana": Artefact(
        "two Grafana dashboards: the broker; its tenants and clients",
        ("grafana/broker.json", "grafana/tenants.json"),
        "import them in Grafana (Dashboards, New, Import), with a data source that scrapes the broker",
    ),
    "prometheus": Artefact(
        "a scrape configuration and alert rules for Prometheus",
        ("prometheus/prometheus.yml", "prometheus/alerts.yml"),
        "start a broker with --http 127.0.0.1:9644, then: prometheus --config.file prometheus.yml",
    ),
}
"""All artefacts. To add one, add its files to ``barnabas/deploy`` and a row here."""


def add_generate(commands: Commands) -> None:
    parser = commands.add_parser("generate", help="write files that deploy or watch a broker", description=DESCRIPTION)
    kinds = parser.add_subparsers(title="files", metavar="WHAT", parser_class=ArgumentParser, required=True)
    for name, artefact in ARTEFACTS.items():
        text = f"Writes {artefact.summary}: {', '.join(Path(file).name for file in artefact.files)}."
        kind = add_command(kinds, name, generate_command, artefact.summary, text)
        kind.set_defaults(name=name)
        kind.add_argument(
            "-o",
            "--out",
            type=Path,
            default=Path(),
            metavar="DIR",
            help="the directory to write to; default: the current one",
        )
        kind.add_argument("--stdout", action="store_true", help="print the files instead")
        kind.add_argument("-f", "--force", action="store_true", help="overwrite files that exist")


def generate_command(name: str, out: Path, stdout: bool, force: bool) -> None:
    """Writes the files of an artefact, or none of them if one exists already."""
    artefact = ARTEFACTS[name]
    texts = {Path(file).name: read_data(file) for file in artefact.files}
    if stdout:
        say("".join(texts.values()), sys.stdout)
        return
    existing = [str(out / file) for file in texts if (out / file).exists()]
    if existing and not force:
        raise UsageError(f"exists already: {', '.join(existing)} (--force overwrites, --stdout prints)")
    try:
        out.mkdir(parents=True, exist_ok=True)
        for file, text in texts.items():
            (out / file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot write the files: {reason(error)}") from None
    say("".join(f"{out / file}\n" for file in texts) + f"Next: {artefact.next_step}\n", sys.stdout)


def read_data(file: str) -> str:
    """Returns a file of ``barnabas/deploy``."""
    from importlib.resources import files

    return files("barnabas").joinpath("deploy", *file.split("/")).read_text(encoding="utf-8")
