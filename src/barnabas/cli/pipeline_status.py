"""``barnabas pipeline status``: shows the state and the lag of each pipeline, and why it is stuck."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.arguments import add_command
from barnabas.cli.cluster import Cluster, add_cluster
from barnabas.cli.console import CommandError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.cli.arguments import ArgumentParser, Commands
    from barnabas.spark.pipelines.config import TableOptions
    from barnabas.spark.pipelines.progress import ProgressDisplay
    from barnabas.spark.pipelines.status import Cluster as ClusterState
    from barnabas.spark.pipelines.status import PipelineStatus
    from barnabas.spark.pipelines.tables import TableStore

STATUS: Final = """Shows the state and the lag of each pipeline, and why it is stuck: a process that has ended,
a cluster that cannot be reached, a batch that fails, records that arrive faster than they are processed.

Exit code 0: all pipelines are healthy. Exit code 1: at least one needs attention."""
TROUBLE: Final = frozenset({"failed", "dead", "stuck", "slow", "falling behind"})
TIMEOUT_MS: Final = 10_000


def add_status_command(actions: Commands, add_place: Callable[[ArgumentParser], None]) -> None:
    """Adds the command. ``add_place`` adds the options for the location of the tables."""
    parser = add_command(actions, "status", status_command, "show what pipelines do and why they are stuck", STATUS)
    add_cluster(parser)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a pipeline, or one such as lake/TABLE; default: all")
    add_place(parser)
    parser.add_argument("--json", dest="as_json", action="store_true", help="as JSON")


def add_metrics_option(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--metrics", metavar="HOST:PORT", help="serve /metrics for Prometheus there while the pipeline runs"
    )


@contextmanager
def observed(
    display: ProgressDisplay, name: str, store: Callable[[], TableStore], cluster: Cluster, metrics: str | None
) -> Iterator[ProgressDisplay]:
    """Yields a display that also writes the status of the pipeline, and serves its metrics at an address if given."""
    from barnabas.common.config_def import ConfigError
    from barnabas.spark.pipelines.query_metrics import QueryMetrics, serve_metrics
    from barnabas.spark.pipelines.status import PipelineStatus, StatusDisplay

    collected = QueryMetrics() if metrics else None
    with ExitStack() as stack:
        if metrics and collected is not None:
            try:
                address = stack.enter_context(serve_metrics(metrics, collected))
            except ConfigError as error:
                raise UsageError(f"--metrics: {error}") from None
            except OSError as error:
                raise CommandError(error.strerror or str(error)) from None
            display.note(name, f"metrics at {address}/metrics")
        status = PipelineStatus(name, bootstrap_servers=cluster.bootstrap)
        yield stack.enter_context(StatusDisplay(display, store, status, collected))


def status_command(
    names: list[str],
    cluster: Cluster,
    out: str,
    as_json: bool,
    table_format: str | None,
    catalog: str | None,
    table_options: list[str],
) -> None:
    """Shows the status of pipelines."""
    from barnabas.cli.pipeline import table_options_of
    from barnabas.common.clock import SYSTEM_CLOCK
    from barnabas.spark.pipelines.status import explain, records_behind

    tables = table_options_of(table_format, catalog, table_options)
    rows: list[dict[str, Any]] = []
    for status in _found(out, names, tables):
        asked = _ask(cluster, status)
        state, text = explain(status, asked, SYSTEM_CLOCK.milliseconds())
        rows.append(
            {
                "pipeline": status.pipeline,
                "state": state,
                "behind": records_behind(status, asked),
                "input_rows_per_second": status.input_rows_per_second,
                "rows_per_second": status.rows_per_second,
                "state_rows": status.state_rows,
                "state_bytes": status.state_bytes,
                "dead_letters": status.dead_letters,
                "why": text,
            }
        )
    _show(rows, out, as_json=as_json)
    wrong = [row["pipeline"] for row in rows if row["state"] in TROUBLE]
    if wrong:
        raise CommandError(f"{len(wrong)} of {len(rows)} pipelines need attention: {', '.join(wrong)}")


def _show(rows: Sequence[dict[str, Any]], out: str, *, as_json: bool) -> None:
    from barnabas.cli.output import number, print_json, print_rich, table

    if as_json:
        print_json(rows)
    if not rows:
        raise CommandError(f"no pipeline has written its status to {out}")
    if as_json:
        return
    headers = ("pipeline", "state", "behind", "rows/s", "dead letters", "why")
    cells = [
        (
            row["pipeline"],
            row["state"],
            number(row["behind"]),
            f"{row['rows_per_second']:,.0f}",
            number(row["dead_letters"]),
            row["why"],
        )
        for row in rows
    ]
    print_rich(table(headers, cells, right=headers[2:5]))


def _found(out: str, names: Sequence[str], tables: TableOptions) -> Iterator[PipelineStatus]:

    from barnabas.spark.pipelines.changes import ChangesConfig
    from barnabas.spark.pipelines.lake import LakeConfig
    from barnabas.spark.pipelines.runner import STREAMS
    from barnabas.spark.pipelines.sessions import SessionsConfig
    from barnabas.spark.pipelines.status import PipelineStatus
    from barnabas.spark.pipelines.table_storage import local_path
    from barnabas.spark.pipelines.tables import TableStore, pipeline_store

    known = list(STREAMS)
    namespaces = {one.kind: one.namespace for one in (LakeConfig, ChangesConfig, SessionsConfig)}
    path = local_path(out)
    for pipeline in namespaces:
        if path is not None and (path / pipeline).is_dir():
            known += [f"{pipeline}/{one.name}" for one in sorted((path / pipeline).iterdir()) if one.is_dir()]
    for name in names or known:
        pipeline, has_table, _ = name.partition("/")
        if has_table and pipeline in namespaces:
            store = TableStore(f"{out.rstrip('/')}/{name}", tables, namespaces[pipeline])
        elif name in STREAMS:
            store = pipeline_store(out, name, tables)
        else:
            raise UsageError(f"there is no pipeline {name}; there are {', '.join(known)}")
        said = store.status()
        if said is not None:
            yield PipelineStatus.from_json(said)
        elif names:
            raise CommandError(f"{name} has written no status to {out}")


def _ask(cluster: Cluster, status: PipelineStatus) -> ClusterState:
    """Looks up the end offsets of the partitions that the pipeline reads."""
    from barnabas import KafkaConsumer, TopicPartition
    from barnabas.common.errors import BarnabasError
    from barnabas.spark.pipelines.status import Cluster as ClusterState

    partitions = [TopicPartition(topic, int(one)) for topic, found in status.offsets.items() for one in found]
    settings = cluster.properties({"request.timeout.ms": TIMEOUT_MS, "default.api.timeout.ms": TIMEOUT_MS})
    if cluster.is_default and status.bootstrap_servers:
        settings["bootstrap.servers"] = status.bootstrap_servers
    try:
        with KafkaConsumer(settings) as consumer:
            # A pipeline without a batch has no partitions: then this only checks that the cluster responds.
            known = consumer.list_topics()
            ends = consumer.end_offsets([one for one in partitions if one.topic in known])
    except (BarnabasError, OSError) as error:
        return ClusterState(error=f"{settings['bootstrap.servers']}: {error}")
    found: dict[str, dict[str, int]] = {}
    for partition, end in ends.items():
        found.setdefault(partition.topic, {})[str(partition.partition)] = end
    return ClusterState(found)
