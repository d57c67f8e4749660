"""``barnabas cluster``: shows the brokers, the controller quorum, the features and the log directories.

barnabas cluster describe
barnabas cluster quorum
barnabas cluster features
barnabas cluster log-dirs
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.admin import add_common, administered
from barnabas.cli.arguments import ArgumentParser, add_command
from barnabas.cli.console import CommandError

if TYPE_CHECKING:
    from barnabas.cli.arguments import Commands
    from barnabas.cli.cluster import Cluster
    from barnabas.clients.admin import LogDirDescription

DESCRIPTION: Final = "Shows the brokers of the cluster, its controller quorum, its features and its log directories."
LOG_DIRS: Final = """Shows the log directories of brokers: used space, free space, and the largest partitions."""


def add_cluster_command(commands: Commands) -> None:
    parser = commands.add_parser(
        "cluster", help="show brokers, quorum, features and log directories", description=DESCRIPTION
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", parser_class=ArgumentParser, required=True)

    describing = add_command(actions, "describe", describe_command, "show brokers", "Shows the brokers of the cluster.")
    add_common(describing)

    voting = add_command(
        actions,
        "quorum",
        quorum_command,
        "show the controller quorum",
        "Shows the leader of the controller quorum, and how far each voter and observer lags.",
    )
    add_common(voting)

    featuring = add_command(
        actions, "features", features_command, "show feature levels", "Shows the finalized levels of the features."
    )
    add_common(featuring)

    storing = add_command(actions, "log-dirs", log_dirs_command, "show log directories", LOG_DIRS)
    add_common(storing)
    storing.add_argument(
        "--broker", dest="brokers", action="append", type=int, metavar="ID", help="only this broker; may be repeated"
    )
    storing.add_argument("-t", "--topic", metavar="TOPIC", help="count only this topic")
    storing.add_argument(
        "-n", "--largest", type=int, default=5, metavar="N", help="how many of the largest partitions; default: 5"
    )


def describe_command(cluster: Cluster, as_json: bool) -> None:
    """Prints the brokers."""
    from barnabas.cli.output import print_json, print_rich, table, title
    from barnabas.common.errors import UnsupportedVersionError

    with administered(cluster) as admin:
        try:
            found = admin.describe_cluster(include_fenced_brokers=True)
        except UnsupportedVersionError:
            found = admin.describe_cluster()
    controller = None if found.controller is None else found.controller.id
    if as_json:
        print_json(
            {
                "cluster_id": found.cluster_id,
                "controller": controller,
                "brokers": [
                    {
                        "id": node.id,
                        "host": node.host,
                        "port": node.port,
                        "rack": node.rack,
                        "fenced": node.id in found.fenced,
                    }
                    for node in found.nodes
                ],
            }
        )
        return
    rows = [
        (
            str(node.id),
            f"{node.host}:{node.port}",
            node.rack or "-",
            "fenced" if node.id in found.fenced else "up",
            "yes" if node.id == controller else "",
        )
        for node in found.nodes
    ]
    print_rich(
        title(f"cluster {found.cluster_id}"),
        table(("broker", "address", "rack", "state", "controller"), rows, right=("broker",)),
    )


def quorum_command(cluster: Cluster, as_json: bool) -> None:
    """Prints the controller quorum."""
    from barnabas.cli.output import number, print_json, print_rich, table, time_text, title

    with administered(cluster) as admin:
        quorum = admin.describe_metadata_quorum()
    end = max((replica.log_end_offset for replica in (*quorum.voters, *quorum.observers)), default=0)
    replicas: list[dict[str, Any]] = [
        {
            "id": replica.replica_id,
            "role": _role(replica.replica_id, quorum.leader_id, voter=replica in quorum.voters),
            "directory_id": replica.directory_id,
            "log_end_offset": replica.log_end_offset,
            "lag": end - replica.log_end_offset,
            "last_caught_up": replica.last_caught_up_timestamp,
            "addresses": list(quorum.nodes.get(replica.replica_id, ())),
        }
        for replica in (*quorum.voters, *quorum.observers)
    ]
    if as_json:
        print_json(
            {
                "leader": quorum.leader_id,
                "epoch": quorum.leader_epoch,
                "high_watermark": quorum.high_watermark,
                "replicas": replicas,
            }
        )
        return
    rows = [
        (
            str(one["id"]),
            one["role"],
            number(one["log_end_offset"]),
            number(one["lag"]),
            time_text(one["last_caught_up"]),
            " ".join(one["addresses"]) or "-",
        )
        for one in replicas
    ]
    print_rich(
        title(f"leader {quorum.leader_id}, epoch {quorum.leader_epoch}, high watermark {quorum.high_watermark:,}"),
        table(("node", "role", "log end", "lag", "caught up", "address"), rows, right=("node", "log end", "lag")),
    )


def _role(replica_id: int, leader_id: int, *, voter: bool) -> str:
    if replica_id == leader_id:
        return "leader"
    return "voter" if voter else "observer"


def features_command(cluster: Cluster, as_json: bool) -> None:
    """Prints the feature levels."""
    from barnabas.cli.output import print_json, print_rich, table

    with administered(cluster) as admin:
        features = admin.describe_features()
    names = sorted({*features.finalized, *features.supported})
    if as_json:
        print_json(
            {
                name: {
                    "level": features.finalized.get(name, 0),
                    "supported": list(features.supported[name]) if name in features.supported else None,
                }
                for name in names
            }
        )
        return
    rows = [
        (
            name,
            str(features.finalized.get(name, 0)),
            str(features.supported[name]) if name in features.supported else "-",
        )
        for name in names
    ]
    print_rich(table(("feature", "level", "supported"), rows, right=("level",)))


def log_dirs_command(
    cluster: Cluster, brokers: list[int] | None, topic: str | None, largest: int, as_json: bool
) -> None:
    """Prints the log directories."""
    from barnabas.cli.output import bytes_text, number, print_json, print_rich, table

    with administered(cluster) as admin:
        there = [node.id for node in admin.describe_cluster().nodes]
        missing = [one for one in brokers or () if one not in there]
        if missing:
            raise CommandError(f"unknown broker {missing[0]}; the cluster has {', '.join(map(str, there))}")
        results = admin.describe_log_dirs(brokers or there)
    documents = [
        _directory(broker, directory, topic, largest)
        for broker, directories in results.items()
        for directory in directories.values()
    ]
    if as_json:
        print_json(documents)
        return
    rows = [
        (
            str(one["broker"]),
            one["path"],
            number(one["partitions"]),
            bytes_text(one["size"]),
            bytes_text(one["usable_bytes"]),
            one["error"] or ("cordoned" if one["cordoned"] else "ok"),
        )
        for one in documents
    ]
    parts = [
        table(
            ("broker", "directory", "partitions", "size", "free", "state"), rows, right=("partitions", "size", "free")
        )
    ]
    biggest = [
        (str(one["broker"]), row["partition"], bytes_text(row["size"])) for one in documents for row in one["largest"]
    ]
    if biggest:
        parts.append(table(("broker", "largest", "size"), biggest, right=("size",)))
    print_rich(*parts)


def _directory(broker: int, directory: LogDirDescription, topic: str | None, largest: int) -> dict[str, Any]:
    replicas = {
        partition: info for partition, info in directory.replicas.items() if topic is None or partition.topic == topic
    }
    order = sorted(replicas, key=lambda partition: (-replicas[partition].size, partition))
    return {
        "broker": broker,
        "path": directory.path,
        "error": None if directory.error is None else str(directory.error),
        "cordoned": directory.is_cordoned,
        "partitions": len(replicas),
        "size": sum(info.size for info in replicas.values()),
        "total_bytes": directory.total_bytes,
        "usable_bytes": directory.usable_bytes,
        "largest": [
            {"partition": str(partition), "size": replicas[partition].size}
            for partition in order[:largest]
            if replicas[partition].size
        ],
    }
