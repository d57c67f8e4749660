"""Metrics of the metadata quorum, with Kafka's names (group ``raft-metrics``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.metrics.registry import Metrics
from barnabas.metrics.sensor import Sensor
from barnabas.metrics.stats import Avg, Max, Rate, WindowedSum

if TYPE_CHECKING:
    from barnabas.raft.kraft_client import KRaftClient

GROUP: Final = "raft-metrics"
_NO_NODE_ID: Final = -1


class KafkaRaftMetrics:
    """Gauges of a Raft client's state, and sensors that the client records into.

    =========================== =======================================================================================
    ``current-leader``, -vote   node ids, -1 for none
    ``current-epoch``           increases with each election
    ``current-state``           leader, follower, candidate, ...
    ``high-watermark``          everything below it is committed
    ``log-end-offset``, -epoch  of the local log
    ``number-of-voters``        1 in a quorum of one
    ``commit-latency-avg, -max``  milliseconds from the write of a batch until it is committed
    ``election-latency-avg, -max``  milliseconds from the start of an election until there is a leader
    ``append-records-rate``     records per second that this node appends as leader
    ``fetch-records-rate``      records per second that this node fetches as follower
    =========================== =======================================================================================
    """

    def __init__(self, metrics: Metrics, client: KRaftClient) -> None:
        def gauge(name: str, text: str, read: object) -> None:
            metrics.add_metric(metrics.metric_name(name, GROUP, description=text), read)  # type: ignore[arg-type]

        gauge("current-leader", "The id of the leader, -1 for none", lambda _config, _now: _leader(client))
        gauge("current-vote", "The id of the node that this node votes for", lambda _config, _now: _vote(client))
        gauge("current-epoch", "The epoch of the quorum", lambda _config, _now: client.leader_and_epoch.epoch)
        gauge("current-state", "The state of this node", lambda _config, _now: client.state.value)
        gauge(
            "high-watermark",
            "The offset below which all records are committed",
            lambda _config, _now: _or_none(client.high_watermark),
        )
        gauge("log-end-offset", "The end of the log", lambda _config, _now: client.log_end_offset)
        gauge("log-end-epoch", "The epoch of the last record", lambda _config, _now: client.log.last_fetched_epoch)
        gauge("number-of-voters", "The number of voters", lambda _config, _now: len(client.voters.voter_ids))
        self._commits = _latency(metrics, "commit-latency", "from the write of a batch until it is committed")
        self._elections = _latency(metrics, "election-latency", "from the start of an election until its end")
        self._appends = _rate(metrics, "append-records-rate", "Records per second that the leader appends")
        _rate(metrics, "fetch-records-rate", "Records per second that a follower fetches")

    def committed(self, records: int, milliseconds: float) -> None:
        """Records the number of appended records, and the time until they were committed."""
        self._appends.record(records)
        self._commits.record(milliseconds)

    def elected(self, milliseconds: float) -> None:
        """Records the duration of an election."""
        self._elections.record(milliseconds)


def _latency(metrics: Metrics, name: str, text: str) -> Sensor:
    sensor = metrics.sensor(name)
    sensor.add(metrics.metric_name(f"{name}-avg", GROUP, description=f"Average milliseconds {text}"), Avg())
    sensor.add(metrics.metric_name(f"{name}-max", GROUP, description=f"Maximum milliseconds {text}"), Max())
    return sensor


def _rate(metrics: Metrics, name: str, text: str) -> Sensor:
    sensor = metrics.sensor(name)
    sensor.add(metrics.metric_name(name, GROUP, description=text), Rate(stat=WindowedSum()))
    return sensor


def _leader(client: KRaftClient) -> int:
    return _or_none(client.leader_and_epoch.leader_id)


def _vote(client: KRaftClient) -> int:
    """Returns the vote of this node: itself, while it is a candidate or the leader."""
    return client.node_id if client.node_id in client.granting_voters else _NO_NODE_ID


def _or_none(value: int | None) -> int:
    return _NO_NODE_ID if value is None else value
