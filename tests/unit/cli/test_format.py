"""``barnabas format``"""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.cli import main
from barnabas.cli.data_dir import default_data_dir
from barnabas.log.dirs.meta_properties import MetaProperties

CLUSTER = "5L6g3nShT-eMCtK--X86sw"


def test_directories_of_the_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "data"
    assert main.run(["format", f"--data-dir={place}", f"--cluster-id={CLUSTER}", "--release-version=4.1"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"Formatted {place} with metadata.version 4.1-IV1",
        f"Cluster id {CLUSTER}, node id 1",
    ]
    found = MetaProperties.read(place)
    assert found is not None
    assert found.cluster_id == CLUSTER
    assert main.run(["format", f"--data-dir={place}"]) == 1
    assert capsys.readouterr().err == (
        f"error: {place} is formatted already; use --ignore-formatted to leave it alone\n"
    )
    assert main.run(["format", f"--data-dir={place}", "--ignore-formatted"]) == 0
    assert "already formatted" in capsys.readouterr().out


def test_directories_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "process.roles=broker,controller\nnode.id=7\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ncontroller.quorum.voters=7@localhost:9093\n"
        f"log.dirs={tmp_path / 'one'},{tmp_path / 'two'}\n"
    )
    assert main.run(["format", f"--config={file}"]) == 0
    assert {(tmp_path / name / "meta.properties").exists() for name in ("one", "two")} == {True}
    assert "node id 7" in capsys.readouterr().out
    assert main.run(["format", f"--config={file}", f"--data-dir={tmp_path / 'three'}"]) == 0
    assert (tmp_path / "three" / "meta.properties").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--release-version=0.9"], 1, "0.9"),
        (["--override=log.dirs=/dev/null/data"], 1, "/dev/null/data"),
        (["--override=node.id=-5"], 2, "node.id"),
    ],
)
def test_what_cannot_be_done(
    arguments: list[str], code: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["format", f"--data-dir={tmp_path / 'data'}", *arguments]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert message in line
    assert not (tmp_path / "data" / "meta.properties").exists()


def test_where_data_are_kept_unless_said_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("HOME", "/home/alice")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.delenv("BARNABAS_DATA_DIR", raising=False)
    assert default_data_dir() == Path("/home/alice/.local/state/barnabas")
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert default_data_dir() == Path("/state/barnabas")
    monkeypatch.setenv("BARNABAS_DATA_DIR", "~/data")
    assert default_data_dir() == Path("/home/alice/data")
    monkeypatch.delenv("BARNABAS_DATA_DIR")
    monkeypatch.setattr("sys.platform", "darwin")
    assert default_data_dir() == Path("/home/alice/Library/Application Support/barnabas")
