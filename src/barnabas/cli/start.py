"""``barnabas start``: runs a broker until it is stopped.

Without options it runs one node that is broker and controller, on 127.0.0.1:9092, with its data in the user's state
directory, which is formatted at the first start. With ``--config`` the file decides. Then nothing is formatted without
``--format``, because empty disks of a configured broker may be a mistake.

The first SIGINT, SIGTERM or SIGHUP starts a controlled shutdown. A second one ends the process at once. That loses no
acknowledged record, but the next start has to recover all logs.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas._kernels import memory
from barnabas.cli.arguments import add_command, add_configuration, port_number
from barnabas.cli.console import CommandError, reason, say
from barnabas.cli.full_collections import SELDOM, FullCollections
from barnabas.cli.logs import LEVELS, STYLES, StartFilter, configure_logging
from barnabas.cli.open_files import allow_open_files
from barnabas.cli.settings import DEFAULT_HOST, DEFAULT_PORT, node_settings, parse_overrides
from barnabas.cli.stop_signals import StopSignals
from barnabas.common.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    import signal

    from barnabas.broker.config.kafka_config import KafkaConfig
    from barnabas.broker.node.kafka_raft_server import KafkaRaftServer
    from barnabas.cli.arguments import ArgumentParser, Commands
    from barnabas.cli.service_manager import ServiceManager

logger = logging.getLogger(__name__)

DESCRIPTION: Final = f"""\
Runs a broker until Ctrl-C, SIGTERM or SIGHUP. Without options: one node on {DEFAULT_HOST}:{DEFAULT_PORT} that keeps its
data in the user's state directory. Any Apache Kafka client can use it."""


def add_start(commands: Commands) -> None:
    parser = add_command(commands, "start", start_command, "run a broker", DESCRIPTION)
    add_configuration(parser)
    parser.add_argument("--host", help=f"the address to listen on and to advertise; default: {DEFAULT_HOST}")
    parser.add_argument(
        "-p", "--port", type=port_number, help=f"the port for clients, 0 for any free one; default: {DEFAULT_PORT}"
    )
    parser.add_argument("--http", metavar="HOST:PORT", help="serve /metrics and /health there; default: no HTTP server")
    parser.add_argument(
        "--format",
        dest="format_first",
        action="store_true",
        help="with --config: format the data directories if none of them is formatted",
    )
    parser.add_argument(
        "--ready-file",
        type=Path,
        metavar="FILE",
        help="write the bootstrap server to this file when the broker is ready; it is removed when the broker stops",
    )
    add_logging(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="print no banner, and log only warnings")


def add_logging(parser: ArgumentParser) -> None:
    """Adds the options of the log."""
    parser.add_argument(
        "--log-level", choices=LEVELS, help="default: info, without the details of startup; --log-level info shows them"
    )
    parser.add_argument(
        "--log-format", choices=STYLES, default="text", help="text, or one JSON object per line and no banner"
    )


def start_command(
    config: Path | None,
    overrides: list[str],
    data_dir: Path | None,
    host: str | None,
    port: int | None,
    http: str | None,
    format_first: bool,
    ready_file: Path | None,
    log_level: str | None,
    log_format: str,
    quiet: bool,
) -> None:
    log = configure_logging("warning" if quiet and log_level in {None, "info"} else log_level, log_format)
    laid_over = parse_overrides(overrides)
    if http is not None:
        laid_over["barnabas.http.listener"] = http
    settings = node_settings(config, laid_over, data_dir, host, port)

    def prepare() -> None:
        if format_first or config is None:
            from barnabas.broker.node.storage_formatter import format_if_empty

            format_if_empty(settings)

    run_broker(settings, prepare, log, ready_file=ready_file, quiet=quiet or log_format == "json")


def run_broker(
    settings: KafkaConfig,
    prepare: Callable[[], object],
    log: StartFilter,
    *,
    ready_file: Path | None = None,
    quiet: bool = False,
) -> None:
    """Runs a broker until a signal stops it. ``prepare`` formats its data directories, if allowed.

    With ``quiet`` nothing is printed on standard output: a supervisor that collects a JSON log reads both streams.
    """
    from barnabas.broker.node.kafka_raft_server import KafkaRaftServer
    from barnabas.common.config_def import ConfigError
    from barnabas.common.errors import BarnabasError

    stop = StopSignals()
    manager = service_manager()
    allow_open_files()
    share_free_memory()  # before any other thread allocates memory
    keep_for_good()
    try:
        if ready_file is not None:
            ready_file.unlink(missing_ok=True)  # left by a broker that was killed
        prepare()
        server = KafkaRaftServer(settings, on_loaded=keep_for_good, on_recovery=recovery_listener(manager, quiet))
        server.startup()
    except (BarnabasError, ConfigError, OSError) as error:
        raise CommandError(f"the broker cannot start: {reason(error)}") from None
    warn_if_open(server)
    if not quiet:
        print_banner(server)
    log.end()
    try:
        if ready_file is not None:
            write_ready_file(ready_file, server)
        keep_for_good()
        number = wait_for_signal(stop, server, manager)
        logger.info("Shutting down after %s; send it again to stop at once", number.name)
    finally:
        if ready_file is not None:
            ready_file.unlink(missing_ok=True)
        if manager is not None:
            manager.stopping()
        server.shutdown()


def service_manager() -> ServiceManager | None:
    """Returns the supervisor to notify, if there is one."""
    if "NOTIFY_SOCKET" not in os.environ:
        return None  # the common case, without loading a module
    from barnabas.cli.service_manager import ServiceManager

    return ServiceManager.of(os.environ)


def wait_for_signal(stop: StopSignals, server: KafkaRaftServer, manager: ServiceManager | None) -> signal.Signals:
    """Waits for the signal that stops the broker. Meanwhile it collects garbage and notifies the
    supervisor that the broker serves."""
    collections = FullCollections(lambda: server.has_large_requests, SYSTEM_CLOCK)
    if manager is not None:
        manager.ready(f"Serving {server.bootstrap_servers if server.broker is not None else 'as a controller'}")
    if manager is None or manager.watchdog_s is None:
        return stop.wait(collections.run_if_due, PULSE_S)

    def pulse() -> None:
        collections.run_if_due()
        # A broker that does not serve is silent, so that the supervisor restarts it.
        if server.health()["status"] == "up":
            manager.alive()

    return stop.wait(pulse, min(PULSE_S, manager.watchdog_s / 3))


def recovery_listener(manager: ServiceManager | None, quiet: bool) -> Callable[[int, int], None] | None:
    """Returns the callback for the progress of log recovery after a crash; None if there is nothing to notify."""
    if manager is None:
        return None if quiet else print_recovery_progress

    def report(done: int, total: int) -> None:
        manager.progress(f"Recovered {done:,} of {total:,} logs")
        if not quiet:
            print_recovery_progress(done, total)

    return report


def write_ready_file(path: Path, server: KafkaRaftServer) -> None:
    """Writes the file atomically, so that a process that waits for it never reads a part of it."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        unfinished.write_text(f"{server.bootstrap_servers}\n")
        unfinished.replace(path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise CommandError(f"--ready-file: {reason(error)}") from None


def warn_if_open(server: KafkaRaftServer) -> None:
    """Warns about a listener that other machines can use without any security."""
    if all(listener.host == DEFAULT_HOST for listener in server.config.listeners):
        return  # the common case, without loading a module
    from barnabas.cli.banner import open_listener_warning

    broker = server.broker
    advertised = [] if broker is None else [f"{one.host}:{one.port}" for one in broker.advertised]
    warning = open_listener_warning(server.config, advertised)
    for line in warning.splitlines() if warning is not None else ():
        logger.warning("%s", line)


SWITCH_INTERVAL_S = 0.0005
"""How long a thread keeps the interpreter lock while another one wants it. The network thread takes the lock about
three times per request, so with Python's default of 5 ms one bulk request would add 15 ms to the latency of others."""


PULSE_S = 1.0
"""How often the main thread looks whether there is something to do."""


def keep_for_good() -> None:
    """Excludes everything that lives as long as the process (modules, definitions) from garbage collection.

    Until here the collector was off; see ``main``.
    """
    gc.freeze()
    if gc.get_threshold()[2]:
        gc.set_threshold(*SELDOM)
    # Otherwise the interpreter has no full collections: Python 3.14 collects old objects in small steps.
    gc.enable()
    sys.setswitchinterval(SWITCH_INTERVAL_S)


def share_free_memory() -> None:
    """Lets all threads share one pool of free memory, unless they really run at the same time.

    Otherwise each handler that has served large requests keeps the memory of the largest for itself.
    """
    from barnabas.server.data_plane import HandOff

    if HandOff.default() is HandOff.DIRECT:
        memory.use_one_arena()


def print_recovery_progress(done: int, total: int) -> None:
    """Prints the progress of recovery on standard output, where the user waits for the banner."""
    _tell(f"Not shut down cleanly: recovered {done:,} of {total:,} logs\n")


def print_banner(server: KafkaRaftServer) -> None:
    """Prints the banner on standard output, apart from the log."""
    from barnabas.cli.banner import banner  # the broker serves requests before this is loaded

    _tell(banner(server))


def _tell(text: str) -> None:
    """Prints on standard output. A full disk there must not stop a broker."""
    try:
        say(text, sys.stdout)
    except CommandError as error:
        logging.getLogger(__name__).warning("%s", error)
