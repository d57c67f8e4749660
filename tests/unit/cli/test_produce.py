"""``barnabas produce`` against a broker of its own."""

from __future__ import annotations

import io
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas import EmbeddedBroker
from barnabas.cli.main import run
from barnabas.cli.pace import Pace
from barnabas.cli.produce_input import BadLineError, line_reader, read_json
from barnabas.clients.common.blocking_client import BlockingClient
from barnabas.clients.common.topic_tail import TopicTail
from barnabas.common.clock import MockClock
from unit.cli.command_line import WAIT_S, Terminal, environment


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as started:
        yield started


class Shell:
    """Runs command lines against the broker, with something on their standard input."""

    def __init__(
        self, broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.broker = broker
        self._capsys = capsys
        self._monkeypatch = monkeypatch
        self.error = ""

    def __call__(self, topic: str, *arguments: str, text: bytes = b"", expect: int = 0) -> str:
        stdin = io.TextIOWrapper(io.BytesIO(text))
        self._monkeypatch.setattr("sys.stdin", stdin)
        code = run(["produce", "-b", self.broker.bootstrap_servers, topic, *arguments])
        out, self.error = self._capsys.readouterr()
        assert code == expect, out + self.error
        return out

    def records(self, topic: str, count: int) -> list[Any]:
        found: list[Any] = []
        deadline = time.monotonic() + WAIT_S
        with BlockingClient(self.broker.bootstrap_servers) as client:
            tail = TopicTail(client, topic, from_beginning=True)
            while len(found) < count:
                assert time.monotonic() < deadline, f"{len(found)} of {count} records came"
                found += tail.poll(500)
        return found

    def values(self, topic: str, count: int) -> list[bytes]:
        return [bytes(tailed.record.value) for tailed in self.records(topic, count)]


@pytest.fixture
def shell(broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(broker, capsys, monkeypatch)


def test_lines(shell: Shell) -> None:
    out = shell("lines", text=b"one\r\ntwo\n\nlast, without an end")
    assert shell.values("lines", 4) == [b"one", b"two", b"", b"last, without an end"]
    assert re.fullmatch(r"4 records to lines in \d+\.\d\d s \([\d,]+ records/s, [\d.]+ MB/s\)\n", out)
    assert shell.error == "", "there is no terminal, so there is no bar"


def test_files_keys_and_headers(shell: Shell, tmp_path: Path) -> None:
    first, second = tmp_path / "1.txt", tmp_path / "2.txt"
    first.write_bytes(b"a=>1\nb=>2=>3\n")
    second.write_bytes(b"=>\n")
    shell(
        "files",
        "-f",
        str(first),
        "--file",
        str(second),
        "-k",
        "=>",
        "-H",
        "source=shell",
        "-H",
        "empty=",
        "--acks",
        "1",
        "-z",
        "zstd",
        "-q",
    )
    found = [tailed.record for tailed in shell.records("files", 3)]
    assert [(bytes(record.key), bytes(record.value)) for record in found] == [
        (b"a", b"1"),
        (b"b", b"2=>3"),
        (b"", b""),
    ]
    assert [(name, bytes(value)) for name, value in found[0].headers] == [("source", b"shell"), ("empty", b"")]


def test_json_lines(shell: Shell) -> None:
    text = (
        b'{"key": "a", "value": {"n": [1, "\xc3\xbc"]}, "headers": [["h", "1"], ["h", null]], "timestamp": 5}\n'
        b'{"value": null, "partition": 0}\n'
    )
    shell("json", "--json", "-H", "all=1", text=text)
    first, second = [tailed.record for tailed in shell.records("json", 2)]
    assert (bytes(first.key), bytes(first.value), first.timestamp) == (b"a", '{"n":[1,"ü"]}'.encode(), 5)
    assert [(name, None if value is None else bytes(value)) for name, value in first.headers] == [
        ("h", b"1"),
        ("h", None),
        ("all", b"1"),
    ]
    assert (second.key, second.value) == (None, None)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"no json", "invalid JSON: Expecting value"),
        (b"[1]", "must be a JSON object, not list"),
        (b"{}", "the field value is missing"),
        (b'{"value": 1, "topic": "t"}', "unknown field topic; a record has value, key, headers, partition, timestamp"),
        (b'{"value": 1, "headers": "h"}', "headers must be an object or a list of pairs"),
        (b'{"value": 1, "headers": [["h"]]}', "headers must be an object or a list of pairs"),
        (b'{"value": 1, "headers": [[1, "x"]]}', "the names of headers must be strings"),
        (b'{"value": 1, "partition": -1}', "partition must be a non-negative integer: -1"),
        (b'{"value": 1, "timestamp": true}', "timestamp must be a non-negative integer: True"),
        (b'{"value": 1, "timestamp": 9223372036854775808}', "timestamp must fit into 64 bits: 9223372036854775808"),
        (b'{"value": 1, "partition": 2147483648}', "partition must fit into 32 bits: 2147483648"),
        (b'{"value": 1, "headers": {"\\ud800": ""}}', "the name of a header cannot be encoded as UTF-8: '\\ud800'"),
        (b"[" * 100_000, "invalid JSON: "),
    ],
)
def test_lines_that_are_no_records(line: bytes, problem: str) -> None:
    with pytest.raises(BadLineError, match=f"^{re.escape(problem)}"):
        read_json(line)


def test_a_bad_line_is_named_and_those_before_it_are_sent(shell: Shell, tmp_path: Path) -> None:
    out = shell("bad", "-k", ":", text=b"a:1\nb:2\nnothing\nc:3\n", expect=1)
    assert shell.error == "error: line 3: the key separator ':' is missing\n"
    assert out.startswith("2 records to bad in ")
    assert shell.values("bad", 2) == [b"1", b"2"]
    file = tmp_path / "bad.jsonl"
    file.write_text('{"value": 1}\n{\n')
    shell("bad", "--json", "-f", str(file), expect=1)
    assert shell.error.startswith(f"error: {file}:2: invalid JSON: ")


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (["--json", "-k", ":"], 2, "--key-separator cannot be used with --json: a JSON line has a field for its key"),
        (["-k", ""], 2, "--key-separator must not be empty"),
        (["-H", "name"], 2, "--header must have the form name=value: 'name'"),
        (["-p", "-1"], 2, "--partition must not be negative: -1"),
        (["-X", "linger=5"], 2, "-X: unknown setting linger; did you mean linger.ms?"),
        (["-X", "linger.ms"], 2, "-X: a setting must have the form name=value: 'linger.ms'"),
        (["-X", "linger.ms=soon"], 2, "Configuration linger.ms cannot be soon: it must be an integer"),
        (["--rate", "0"], 2, "must be a number above 0: '0'"),
        (["--rate", "fast"], 2, "must be a number above 0: 'fast'"),
        (["-f", "nowhere.txt"], 1, "nowhere.txt: No such file or directory"),
    ],
)
def test_command_lines_that_make_no_sense(shell: Shell, arguments: list[str], code: int, problem: str) -> None:
    shell("never", *arguments, expect=code)
    assert problem in shell.error
    assert shell.error.count("\n") == 1


def test_what_the_cluster_refuses(shell: Shell) -> None:
    out = shell("in valid", text=b"x\ny\n", expect=1)
    assert shell.error == "error: line 1: Invalid topics: [in valid]\n"
    assert "0 records to in valid" in out
    assert out.endswith(" failed\n")
    shell("one", text=b"x\n")
    shell("one", "-p", "7", "-X", "max.block.ms=1500", text=b"x\n", expect=1)
    assert "Partition 7 of topic one with partition count 1 is not present" in shell.error


def test_nobody_there(shell: Shell) -> None:
    shell("t", "-b", "127.0.0.1:1", "-X", "max.block.ms=300", text=b"x\n", expect=1)
    assert "nothing listens on that port" in shell.error
    assert shell.error.count("\n") == 1


class SleepingClock(MockClock):
    """Time passes when somebody sleeps."""

    def sleep(self, milliseconds: float) -> None:
        self.advance(milliseconds)


def test_pace() -> None:
    clock = SleepingClock()
    pace = Pace(100, clock)
    started = clock.milliseconds()
    for number in range(51):
        pace.wait_for(number)
    assert clock.milliseconds() - started == pytest.approx(500, abs=10)
    clock.advance(1_000)
    for number in range(51, 150):
        pace.wait_for(number)
    assert clock.milliseconds() - started == pytest.approx(1_500, abs=10), "it catches up"
    spared = Pace(100, clock, 50)
    clock.advance(1_000)
    started = clock.milliseconds()
    for number in range(100):
        spared.wait_for(number)
    assert clock.milliseconds() - started == pytest.approx(940, abs=10), "it catches up by 50 ms"
    unlimited = Pace(None, clock)
    before = clock.milliseconds()
    unlimited.wait_for(10**9)
    assert clock.milliseconds() == before


def test_rate(shell: Shell) -> None:
    shell("slow", "--rate", "200", text=b"x\n" * 60)
    times = [tailed.record.timestamp for tailed in shell.records("slow", 60)]
    assert times[-1] - times[0] >= 150


def test_readers_without_options() -> None:
    assert line_reader(as_json=False, key_separator=None)(b"a:b").value == b"a:b"


def test_a_bar_at_a_terminal(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "many.txt"
    file.write_bytes(b"x" * 99 + b"\n" + (b"y" * 99 + b"\n") * 599)
    with Terminal(
        "produce", "bar", "-f", str(file), "--rate", "1000", env=environment(BARNABAS_BOOTSTRAP=_address(shell))
    ) as terminal:
        terminal.read_until(r"\d+ records .*kB")
        assert terminal.wait() == 0
        assert re.search(r"600 records to bar in \d", terminal.text)
    assert len(shell.values("bar", 600)) == 600


def test_typed_lines_are_sent_as_they_come_and_ctrl_c_ends_it(shell: Shell) -> None:
    with Terminal("produce", "typed", env=environment(BARNABAS_BOOTSTRAP=_address(shell))) as terminal:
        os.write(terminal._screen, b"first\n")
        assert shell.values("typed", 1) == [b"first"]
        os.write(terminal._screen, b"second\n")
        assert shell.values("typed", 2) == [b"first", b"second"]
        terminal.interrupt()
        assert terminal.wait() == 0
        assert "2 records to typed" in terminal.text
        assert "Traceback" not in terminal.text


def _address(shell: Shell) -> str:
    return shell.broker.bootstrap_servers
