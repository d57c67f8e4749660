"""The parts that the broker and controller of one node share: the metadata log and its readers.

A node with both roles has one copy of the metadata log, not two. So the Raft client and the loader belong to neither::

    KafkaRaftManager --> MetadataLoader --> publishers of the controller, publishers of the broker
         |                                  snapshot generator
         +-------------> QuorumController
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from barnabas.broker.config.kafka_config import KafkaConfig
from barnabas.broker.node.listener_security import outgoing_channels
from barnabas.broker.to_controller.controller_node_provider import ControllerNodeProvider
from barnabas.common.clock import Clock
from barnabas.common.events.event_thread import EventThread
from barnabas.common.identifiers import Uuid
from barnabas.common.shutdownable_thread import ExitProcedure
from barnabas.log.dirs.log_dir_names import DELETE_DIR_SUFFIX, STRAY_DIR_SUFFIX
from barnabas.log.dirs.meta_properties import data_in, shown_names
from barnabas.metadata.loader import MetadataLoader
from barnabas.metadata.loader_metrics import MetadataLoaderMetrics
from barnabas.metadata.raft_listener import MetadataRaftListener
from barnabas.metadata.snapshot_generator import SnapshotEmitter, SnapshotGenerator
from barnabas.metrics.registry import Metrics
from barnabas.metrics.yammer.registry import KafkaMetricsGroup, MetricsRegistry
from barnabas.network.client.node import Node
from barnabas.network.reactor.channel_factory import ChannelFactory
from barnabas.network.server.endpoint import Endpoint
from barnabas.raft.bootstrap_file import METADATA_LOG_DIR_NAME
from barnabas.raft.client import LeaderAndEpoch
from barnabas.raft.kraft_log import MetadataLogError
from barnabas.raft.raft_manager import KafkaRaftManager
from barnabas.raft.raft_metrics import KafkaRaftMetrics
from barnabas.raft.voter_set import VoterEndpoint
from barnabas.server.handler_pool import HandlerIdleTime
from barnabas.server.request_metrics import RequestTimes

logger = logging.getLogger(__name__)

FATAL_STATUS = 1


class SharedServer:
    """Owns the shared parts of a node. Made first and closed last."""

    def __init__(
        self,
        config: KafkaConfig,
        cluster_id: str,
        metadata_directory_id: Uuid,
        clock: Clock,
        exit_procedure: ExitProcedure,
        channel_factories: Mapping[str, ChannelFactory] | None = None,
    ) -> None:
        self.config = config
        self.channel_factories = channel_factories
        """Channel factories, by listener name, that replace those of the security protocols."""
        self.cluster_id = cluster_id
        self.clock = clock
        self.exit_procedure = exit_procedure
        self.registry = MetricsRegistry(clock)
        self.metrics = Metrics(clock=clock)
        self.request_times = RequestTimes(self.registry, clock)
        self.idle_time = HandlerIdleTime(self.registry)
        self._directory_id = metadata_directory_id
        self._faults = KafkaMetricsGroup(self.registry, "kafka.server", "MetadataLoader").new_meter(
            "MetadataApplyErrorCount", "errors"
        )
        self.raft: KafkaRaftManager | None = None
        self._started = False
        """Whether the loader has a thread; without one, its futures never complete."""
        node_id = config.node_id
        self._loader_thread = EventThread(f"kafka-{node_id}-metadata-loader-event-handler", clock, exit_procedure)
        self._snapshot_thread = EventThread(f"kafka-{node_id}-snapshot-generator-event-handler", clock, exit_procedure)
        self.loader = MetadataLoader(
            self._loader_thread,
            self.high_watermark,
            self.fault,
            clock,
            MetadataLoaderMetrics(self.registry),
            on_load_fault=self.load_fault,
        )
        self.controller_nodes = ControllerNodeProvider(
            {voter.id: Node(voter.id, voter.host, voter.port) for voter in config.quorum_voters},
            config.controller_listener_names[0] if config.controller_listener_names else None,
            self._leader_id,
        )

    def controller_channels(self) -> ChannelFactory:
        """Returns the factory of this node's connections to controllers."""
        config = self.config
        listener = config.controller_listener_names[0]
        protocol = config.listener_config.protocols[listener]
        return outgoing_channels(config, listener, protocol, config.value("sasl.mechanism.controller.protocol"))

    def open(self) -> KafkaRaftManager:
        """Opens the metadata log and registers the loader as a listener. No thread runs yet."""
        config = self.config
        in_log_dir = config.is_broker and config.metadata_log_dir in config.log_dirs
        raft = self.raft = KafkaRaftManager(
            config.node_id,
            self._directory_id,
            config.metadata_log_dir,
            config.raft(),
            controller_listener_name=config.controller_listener_names[0],
            lock_directory=not in_log_dir,
            clock=self.clock,
            exit_procedure=self.exit_procedure,
        )
        if config.is_broker and raft.client.log_end_offset == 0:
            self._check_for_lost_metadata()
        raft.client.record_into(KafkaRaftMetrics(self.metrics, raft.client))
        raft.client.register(_Listener(self.loader, self.controller_nodes))
        return raft

    def _check_for_lost_metadata(self) -> None:
        """Refuses an empty metadata log beside partition logs: it was lost, the cluster is not new."""
        log = self.config.metadata_log_dir / METADATA_LOG_DIR_NAME
        for path in self.config.log_dirs:
            folders = [
                name
                for name in data_in(path)
                if (path / name).is_dir()
                and name != METADATA_LOG_DIR_NAME
                and not name.endswith((DELETE_DIR_SUFFIX, STRAY_DIR_SUFFIX))
            ]
            if folders:
                raise MetadataLogError(
                    f"the metadata log in {log} is empty, but {path} has logs of partitions ({shown_names(folders)}), "
                    "which would belong to no topic. Restore the metadata log from a backup, or move these folders away"
                )

    def start(self, controller_endpoints: Sequence[Endpoint]) -> None:
        """Joins the quorum, as a controller with these listeners."""
        config, raft = self.config, self.raft
        assert raft is not None
        self._loader_thread.start()
        self._started = True
        self._snapshot_thread.start()
        snapshots = SnapshotGenerator(
            SnapshotEmitter(raft.client, self.clock),
            self._snapshot_thread,
            self.fault,
            max_bytes=config.value("metadata.log.max.record.bytes.between.snapshots"),
            max_interval_ms=config.value("metadata.log.max.snapshot.interval.ms"),
            clock=self.clock,
        )
        self.loader.install_publishers([self.controller_nodes, snapshots])
        for endpoint in controller_endpoints[:1]:
            self.controller_nodes.set_own(Node(config.node_id, endpoint.host, endpoint.port))
        raft.startup([VoterEndpoint(one.listener_name, one.host, one.port) for one in controller_endpoints])

    def close(self) -> None:
        if self._started:
            self.loader.close().result()
        if self.raft is not None:
            self.raft.shutdown()
        self._snapshot_thread.close()
        self._loader_thread.close()

    # -- faults

    def fault(self, what: str, error: BaseException) -> None:
        """Handles a failure that the node survives, though a part of it may be stale now."""
        self._faults.mark(1)
        logger.error("Error while %s", what, exc_info=error)

    def fatal_fault(self, what: str, error: BaseException) -> None:
        """Handles a failure that the node cannot survive."""
        logger.critical("Fatal error while %s", what, exc_info=error)
        self.exit_procedure(FATAL_STATUS)

    def load_fault(self, what: str, error: BaseException) -> None:
        """Ends the node: with incomplete metadata, any further action could be wrong. (Kafka: fatal on controllers.)"""
        self._faults.mark(1)
        logger.critical(
            "The metadata in %s could not be loaded, and the node ends without acting on them: %s: %s",
            self.config.metadata_log_dir / METADATA_LOG_DIR_NAME,
            what,
            error,
            exc_info=error,
        )
        self.exit_procedure(FATAL_STATUS)

    # -- for the loader and the channels

    def high_watermark(self) -> int | None:
        """Returns the high watermark of the metadata log; None while it is unknown."""
        return None if self.raft is None else self.raft.client.high_watermark

    def _leader_id(self) -> int | None:
        return None if self.raft is None else self.raft.client.leader_and_epoch.leader_id


class _Listener(MetadataRaftListener):
    """Also notifies the waiters for a controller when one is elected."""

    def __init__(self, loader: MetadataLoader, nodes: ControllerNodeProvider) -> None:
        super().__init__(loader)
        self._nodes = nodes

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        super().handle_leader_change(leader)
        self._nodes.changed()
