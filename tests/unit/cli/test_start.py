"""``barnabas start``: what it says, where it listens, how it ends."""

from __future__ import annotations

import logging
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from benchmarks.broker_process import free_port
from benchmarks.wire_client import WireClient

from barnabas import __version__, _kernels
from barnabas.broker.config.kafka_config import KafkaConfig
from barnabas.broker.node.storage_formatter import format_storage
from barnabas.cli import main
from barnabas.cli.banner import open_listener_warning
from barnabas.cli.logs import ColorFormatter, configure_logging
from barnabas.cli.open_files import allow_open_files
from barnabas.embedded import EmbeddedBroker
from unit.cli.command_line import COMMAND, WAIT_S, Terminal, broker, environment, run


def only_line(text: str) -> str:
    """The error line; fails if there is more, such as a traceback."""
    (line,) = text.splitlines()
    assert line.startswith("error: ")
    return line.removeprefix("error: ")


# ---------------------------------------------------------------------------------------------------- a session


def test_a_session_at_a_terminal(tmp_path: Path) -> None:
    with broker(tmp_path / "data") as terminal:
        address = terminal.bootstrap_servers
        terminal.read_until(r"Ctrl-C stops it")
        assert f"Barnabas {__version__} is ready" in terminal.text
        assert str(tmp_path / "data") in terminal.text
        with WireClient(address) as client:
            client.create_topic("orders")
            client.produce("orders", 0, b"value")
            cluster_id = client.metadata().cluster_id
        assert f"cluster id        {cluster_id}" in terminal.text
        terminal.interrupt()
        assert terminal.wait() == 0
        assert "Shutting down after SIGINT" in terminal.text
        assert "Traceback" not in terminal.text
        assert "shutdownable_thread" not in terminal.text, "threads come and go without a word"
    with broker(tmp_path / "data") as terminal, WireClient(terminal.bootstrap_servers) as client:
        assert client.metadata().cluster_id == cluster_id
        assert client.fetch_all("orders", 0) == [b"value"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_it_in_good_order(tmp_path: Path, number: signal.Signals) -> None:
    with broker(tmp_path) as terminal:
        _ = terminal.bootstrap_servers
        terminal.signal(number)
        assert terminal.wait() == 0
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_closed_window_ends_it_in_good_order(tmp_path: Path) -> None:
    with broker(tmp_path) as terminal:
        _ = terminal.bootstrap_servers
        terminal.close_window()
        assert terminal.exit_code() == 0
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_second_interrupt_does_not_ask_again(tmp_path: Path) -> None:
    """Here while the first one waits for a lock that this test holds: as if something was stuck."""
    with broker(tmp_path) as terminal:
        _ = terminal.bootstrap_servers
        terminal.signal(signal.SIGSTOP)
        terminal.signal(signal.SIGINT)
        terminal.signal(signal.SIGTERM)
        terminal.signal(signal.SIGCONT)
        code = terminal.wait()
    assert code == 130
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_quiet_means_quiet(tmp_path: Path) -> None:
    port = free_port()
    with broker(tmp_path, f"--port={port}", "--quiet") as terminal:
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            try:
                WireClient(f"127.0.0.1:{port}").close()
                break
            except ConnectionRefusedError:
                terminal.read(0.01)
        with WireClient(f"127.0.0.1:{port}") as client:
            assert client.metadata().brokers[0].port == port
        terminal.interrupt()
        assert terminal.wait() == 0
        assert terminal.text.replace("^C", "") == ""


def test_without_options_the_data_are_in_the_state_folder(tmp_path: Path) -> None:
    env = environment(XDG_STATE_HOME=str(tmp_path), HOME=str(tmp_path / "home"))
    with Terminal("start", "--port=0", env=env) as terminal:
        _ = terminal.bootstrap_servers
        assert str(tmp_path / "barnabas") in terminal.text
        assert (tmp_path / "barnabas" / "meta.properties").exists()


def test_a_file_with_the_settings_of_kafka(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "process.roles=broker,controller\nnode.id=7\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0\ncontroller.quorum.voters=7@127.0.0.1:0\n"
        f"log.dirs={tmp_path / 'data'}\nnum.partitions=5\n"
    )
    refused = run("start", f"--config={file}")
    assert refused.returncode == 1
    assert "is not formatted; run `barnabas format`" in only_line(refused.stderr)
    with Terminal("start", f"--config={file}", "--format", "--override=num.partitions=2") as terminal:
        with WireClient(terminal.bootstrap_servers) as client:
            client.create_topics([("orders", -1)])
            assert client.metadata().brokers[0].node_id == 7
            assert len(client.metadata(["orders"]).topics[0].partitions) == 2
        terminal.interrupt()
        assert terminal.wait() == 0


def test_an_early_interrupt_ends_it_without_a_traceback(tmp_path: Path) -> None:
    with broker(tmp_path) as terminal:
        terminal.read_until("Starting")
        terminal.interrupt()
        assert terminal.wait() == 0
        assert "Traceback" not in terminal.text


# ---------------------------------------------------------------------------------------------------- what goes wrong


def test_a_taken_port(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = run("start", "-q", f"--port={port}", f"--data-dir={tmp_path}")
    assert result.returncode == 1
    assert only_line(result.stderr) == (
        f"the broker cannot start: cannot open PLAINTEXT://127.0.0.1:{port}: Address already in use"
    )


def test_a_taken_port_of_the_controller(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        controller = f"127.0.0.1:{taken.getsockname()[1]}"
        file.write_text(
            "process.roles=broker,controller\nnode.id=7\ncontroller.listener.names=CONTROLLER\n"
            f"listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://{controller}\ncontroller.quorum.voters=7@{controller}\n"
            f"log.dirs={tmp_path / 'data'}\n"
        )
        result = run("start", "-q", f"--config={file}", "--format")
    assert result.returncode == 1
    assert only_line(result.stderr) == (
        f"the broker cannot start: cannot open CONTROLLER://{controller}: Address already in use"
    )


def test_a_taken_port_for_http(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = run("start", "-q", "--port=0", f"--http={address}", f"--data-dir={tmp_path}")
    assert result.returncode == 1
    assert f"cannot open http://{address}: Address already in use" in only_line(result.stderr)


def test_a_directory_in_use(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path):
        result = run("start", "-q", "--port=0", f"--data-dir={tmp_path}")
    assert result.returncode == 1
    assert only_line(result.stderr) == f"the broker cannot start: {tmp_path} is in use by another broker"


def test_a_directory_of_another_node(tmp_path: Path) -> None:
    format_storage(KafkaConfig.for_zero_configuration(tmp_path, overrides={"node.id": 5}))
    result = run("start", "-q", "--port=0", f"--data-dir={tmp_path}")
    assert result.returncode == 1
    assert "node" in only_line(result.stderr)
    assert "5" in only_line(result.stderr)


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    result = run("start", "-q", "--port=0", f"--data-dir={file / 'data'}")
    assert result.returncode == 1
    assert only_line(result.stderr.splitlines()[-1]).endswith(
        f"cannot read {file / 'data' / 'meta.properties'}: Not a directory"
    )


WRONG = {
    "port": (["start", "--port=66000"], "a port must be between 0 and 65535: '66000'"),
    "port text": (["start", "--port=kafka"], "a port must be between 0 and 65535: 'kafka'"),
    "command": (["strat"], "unknown command: barnabas strat; did you mean barnabas start?"),
    "plural": (["topic", "list"], "unknown command: barnabas topic; did you mean barnabas topics?"),
    "action": (["topics", "lst"], "unknown command: barnabas topics lst; did you mean barnabas topics list?"),
    "nonsense": (["xyzzy"], "unknown command: barnabas xyzzy; known commands: start, container, format, topics,"),
    "option": (["start", "--prot=1"], "unrecognized arguments: --prot=1; did you mean --port?"),
    "option of an action": (
        ["topics", "create", "orders", "--partitons", "3"],
        "unrecognized arguments: --partitons 3; did you mean --partitions? (see barnabas topics create --help)",
    ),
    "abbreviation": (["start", "--over=a=b"], "unrecognized arguments: --over=a=b; did you mean --override?"),
    "override": (["start", "--override=num.partitions"], "--override must have the form key=value"),
    "value": (["start", "--override=num.partitions=many"], "num.partitions"),
    "level": (["start", "--log-level=loud"], "invalid choice: 'loud'"),
    "file": (["start", "--config=nowhere.properties"], "file not found: nowhere.properties"),
    "directory": (["start", "--config=."], "cannot read"),
    "both": (["start", "--config=x", "--port=1"], "--host and --port cannot be used with --config"),
    "http": (["start", "--http=nonsense"], "barnabas.http.listener"),
    "release": (["format", "--release-version"], "expected one argument"),
}


@pytest.mark.parametrize(("arguments", "message"), WRONG.values(), ids=list(WRONG))
def test_a_command_line_that_makes_no_sense(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In this process, which is quicker; that the exit code gets out is seen above."""
    monkeypatch.setenv("BARNABAS_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logging, "basicConfig", lambda **_settings: None)
    assert main.run(arguments) == 2
    assert message in only_line(capsys.readouterr().err)
    assert not (tmp_path / "data").exists()


def test_a_mistake_of_ours_is_one_line_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*_arguments: object, **_options: object) -> None:
        raise LookupError("oops")

    monkeypatch.setattr("barnabas.cli.format.node_settings", broken)
    assert main.run(["format"]) == 1
    assert only_line(capsys.readouterr().err).startswith("LookupError: oops")


# ---------------------------------------------------------------------------------------------------- first contact


@pytest.mark.parametrize("pure", ["", "1"])
def test_the_banner_and_the_version_say_which_code_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pure: str
) -> None:
    monkeypatch.setattr(_kernels, "PURE", pure == "1")
    python = ".".join(map(str, sys.version_info[:3]))
    expected = _kernels.running_code()
    with broker(tmp_path / "data", env=environment(BARNABAS_PURE=pure)) as terminal:
        terminal.read_until(r"Ctrl-C stops it")
        assert f"code              {expected}, Python {python}" in terminal.text
    assert run("--version", BARNABAS_PURE=pure).stdout == f"barnabas {__version__} ({expected}, Python {python})\n"


def test_python_runs_the_package() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "barnabas", "--version"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=True,
    )
    assert done.stdout.startswith(f"barnabas {__version__} (")


def test_the_ready_file_has_the_address_while_the_broker_serves(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    ready.write_text("left by a broker that was killed")
    with broker(tmp_path / "data", f"--ready-file={ready}") as terminal:
        address = terminal.bootstrap_servers
        deadline = time.monotonic() + WAIT_S
        while not ready.exists() and time.monotonic() < deadline:
            terminal.read(0.05)
        assert ready.read_text() == f"{address}\n"
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith("ready")] == ["ready"]
        terminal.signal(signal.SIGTERM)
        assert terminal.wait() == 0
    assert not ready.exists()


def test_a_ready_file_that_cannot_be_written_ends_the_broker(tmp_path: Path) -> None:
    with broker(tmp_path / "data", f"--ready-file={tmp_path / 'missing' / 'ready'}") as terminal:
        assert terminal.wait() == 1
        assert "--ready-file" in terminal.text
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize(
    ("overrides", "warned"),
    [
        ({}, "0.0.0.0:9092"),
        ({"listeners": "PLAINTEXT://:9092,CONTROLLER://127.0.0.1:0"}, "0.0.0.0:9092"),
        ({"listeners": "PLAINTEXT://192.0.2.1:9092,CONTROLLER://127.0.0.1:0"}, "192.0.2.1:9092"),
        ({"listeners": "PLAINTEXT://localhost:9092,CONTROLLER://127.0.0.1:0"}, None),
        ({"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}, None),
    ],
)
def test_a_listener_for_everybody_is_warned_about(
    tmp_path: Path, overrides: dict[str, str], warned: str | None
) -> None:
    config = KafkaConfig.for_zero_configuration(tmp_path, host="0.0.0.0", overrides=overrides)
    warning = open_listener_warning(config, ["kafka.example.com:9092"])
    if warned is None:
        assert warning is None
        return
    assert warning is not None
    what, where = warning.splitlines()
    assert what.startswith(f"Listening on {warned} without encryption, authentication or ACLs: everyone")
    assert where.startswith("Clients connect to kafka.example.com:9092; ")


def test_the_warning_is_in_the_log(tmp_path: Path) -> None:
    with broker(
        tmp_path / "open", "--host=0.0.0.0", "--quiet", "--override=advertised.listeners=PLAINTEXT://a:1"
    ) as one:
        one.read_until(r"WARNING.*Listening on 0\.0\.0\.0:0 without encryption")
        one.read_until(r"WARNING.*Clients connect to a:1; to change that, use --override advertised\.listeners")
    with broker(tmp_path / "closed") as other:
        other.read_until(r"Ctrl-C stops it")
        assert "without encryption" not in other.text


# ---------------------------------------------------------------------------------------------------- the rest


@pytest.mark.parametrize("arguments", [["--help"], ["start", "--help"], ["format", "-h"], ["--version"]])
def test_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main.run(arguments)
    assert ended.value.code == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out.startswith(f"barnabas {__version__}" if "--version" in arguments else "usage: barnabas")
    assert all(len(line) <= 120 for line in shown.out.splitlines())


def test_no_command_is_a_question(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([]) == 2
    assert "start" in capsys.readouterr().err


def test_help_needs_no_broker() -> None:
    """It is there at once: nothing of the broker is loaded for it."""
    script = "import sys; from barnabas.cli import main; main.make_parser(); print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", script], env=environment(), capture_output=True, text=True, timeout=WAIT_S, check=True
    ).stdout.split()
    assert not [name for name in loaded if name.startswith(("barnabas.broker", "barnabas.protocol", "barnabas.log"))]
    assert not {"urllib.request", "http.client", "ssl", "email", "asyncio", "importlib.metadata"} & set(loaded)


def test_a_reader_that_goes_away_does_not_stop_it(tmp_path: Path) -> None:
    """``barnabas start | head -1``"""
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.Popen(
        [*COMMAND, "start", "--port=0", f"--data-dir={tmp_path}"],
        env=environment(),
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writer)
    assert process.stderr is not None
    for line in process.stderr:
        if "is running" in line:
            break
    process.terminate()
    _, rest = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0
    assert "BrokenPipe" not in rest


def test_colors_are_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    record = logging.LogRecord("name", logging.WARNING, "path", 1, "text", None, None)
    assert ColorFormatter("%(message)s").format(record) == "\x1b[33mtext\x1b[0m"
    record.levelno = logging.ERROR
    assert ColorFormatter("%(message)s").format(record) == "\x1b[31mtext\x1b[0m"
    record.levelno = logging.INFO
    assert ColorFormatter("%(message)s").format(record) == "text"


def test_a_level_that_is_asked_for_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, object] = {}
    monkeypatch.setattr(logging, "basicConfig", seen.update)
    configure_logging("debug")
    assert seen["level"] == logging.DEBUG


def test_the_limit_of_open_files_is_raised_as_far_as_it_may() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(1000, before[1]), before[1]))
        allow_open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
