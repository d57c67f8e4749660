"""The admin client: cluster administration."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from functools import wraps
from random import Random
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Self, TypeVar, Unpack

from barnabas.clients.admin import (
    acls,
    cluster,
    configs,
    group_offsets,
    groups,
    log_dirs,
    offsets,
    partitions,
    quotas,
    scram,
    tokens,
    topics,
    transactions,
)
from barnabas.clients.admin.admin_config import AdminClientConfig
from barnabas.clients.admin.internals.admin_core import METRIC_GROUP_PREFIX, AdminCore
from barnabas.clients.admin.internals.operation import Operation
from barnabas.clients.admin.internals.steps import Promise
from barnabas.clients.common.client_metrics import metric_value
from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.identifiers import Uuid
from barnabas.metrics.metric import KafkaMetric
from barnabas.metrics.names import MetricName
from barnabas.network.client.host_resolver import HostResolver, resolve_all_ips
from barnabas.network.reactor.selectable import Selectable

if TYPE_CHECKING:
    from barnabas.clients.typed_settings import AdminSettings

ADMIN_GROUP: Final = f"{METRIC_GROUP_PREFIX}-metrics"

P = ParamSpec("P")
R = TypeVar("R")


def blocking(
    operation: Callable[Concatenate[Operation, P], Coroutine[Promise[Any], None, R]],
) -> Callable[Concatenate[KafkaAdminClient, P], R]:
    """Makes a method that runs an operation and waits for its result."""

    @wraps(operation)
    def method(admin: KafkaAdminClient, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return admin.submit(lambda context: operation(context, *args, **kwargs)).result()

    return method


class KafkaAdminClient:
    """Administers a cluster: topics, settings, groups, quotas, transactions. Thread-safe.

        with KafkaAdminClient(bootstrap_servers="localhost:9092") as admin:
            admin.create_topics([NewTopic("orders", num_partitions=3)])
            for topic in admin.describe_topics(["orders"]).values():
                print(topic.partitions[0].leader)

    A call returns frozen dataclasses when it is done; calls from many threads run concurrently, over one connection to
    each broker. Each request goes to the right broker: any broker, the controller, the leader of a partition, the
    coordinator of a group. Transient errors, such as a coordinator that is still loading, are retried until
    ``default.api.timeout.ms``; `with_timeout` sets another limit.

    **Errors** are exceptions, one class for each of Kafka's codes. An operation on several things does them all and
    raises the first error, with the rest in notes; with ``partial=True`` it returns the successes and the errors
    (`Results`).

    **Settings** are Kafka's, as keywords (``client_id="ops"``) or in a mapping (``{"client.id": "ops"}``).

    Brokers from Kafka 3.0 on are supported. If a broker lacks an API, the call raises `UnsupportedVersionError`.
    """

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        /,
        *,
        clock: Clock = SYSTEM_CLOCK,
        resolver: HostResolver = resolve_all_ips,
        selector: Selectable | None = None,
        random: Random | None = None,
        start_thread: bool = True,
        fail_fast: bool = False,
        **settings: Unpack[AdminSettings],
    ) -> None:
        """``fail_fast`` is for interactive commands: unreachable bootstrap servers are an error at once, instead of
        being retried until the timeout.

        ``selector``, ``clock``, ``random`` and ``start_thread`` are for tests. With them, no thread runs, and
        ``admin.core.runnable.run_once()`` runs one iteration of the loop.
        """
        self.core = AdminCore(
            config,
            settings,
            clock=clock,
            resolver=resolver,
            selector=selector,
            random=random,
            start_thread=start_thread,
            fail_fast=fail_fast,
        )
        self._timeout_ms: int | None = None

    @property
    def config(self) -> AdminClientConfig:
        """The settings of this client, with their defaults."""
        return self.core.config

    def with_timeout(self, timeout_ms: int) -> KafkaAdminClient:
        """Returns the same client with this timeout for each operation: ``admin.with_timeout(5_000).list_topics()``."""
        view = object.__new__(type(self))
        view.core = self.core
        view._timeout_ms = timeout_ms
        return view

    def submit(self, run: Callable[[Operation], Coroutine[Promise[Any], None, R]]) -> Future[R]:
        """Starts an operation without waiting for it: ``admin.submit(lambda op: topics.list_topics(op))``."""
        return self.core.submit(run, self._timeout_ms)

    def metrics(self) -> dict[MetricName, KafkaMetric]:
        """Returns all metrics by name: ``connection-count``, ``request-rate`` and so on, in
        ``admin-client-metrics``."""
        return self.core.metrics.metrics

    def metric(self, name: str, group: str = ADMIN_GROUP, **tags: str) -> Any:
        """Returns the current value of one metric; tags have underscores for hyphens."""
        return metric_value(self.core.metrics, self.config.client_id, name, group, tags)

    def client_instance_id(self, timeout: float) -> Uuid:
        """Returns this client's instance id for telemetry, as 16 bytes (KIP-714).

        Blocks for at most ``timeout`` seconds until the cluster has assigned it."""
        return self.core.client_instance_id(timeout)

    def close(self, timeout_ms: int | None = None) -> None:
        """Closes the client. Running operations fail after the timeout, or ``default.api.timeout.ms``."""
        self.core.close(timeout_ms)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_exception: object) -> None:
        # After an error, do not wait for the remaining operations.
        self.close(0 if kind is not None else None)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self.config.bootstrap_servers)})"

    # topics
    create_topics = blocking(topics.create_topics)
    delete_topics = blocking(topics.delete_topics)
    delete_topics_by_id = blocking(topics.delete_topics_by_id)
    create_partitions = blocking(topics.create_partitions)
    list_topics = blocking(topics.list_topics)
    describe_topics = blocking(topics.describe_topics)
    describe_topics_by_id = blocking(topics.describe_topics_by_id)

    # offsets
    list_offsets = blocking(offsets.list_offsets)
    delete_records = blocking(offsets.delete_records)

    # configs
    describe_configs = blocking(configs.describe_configs)
    incremental_alter_configs = blocking(configs.incremental_alter_configs)
    list_config_resources = blocking(configs.list_config_resources)
    list_client_metrics_resources = blocking(configs.list_client_metrics_resources)

    # groups
    list_groups = blocking(groups.list_groups)
    describe_groups = blocking(groups.describe_groups)
    delete_groups = blocking(groups.delete_groups)
    remove_members = blocking(groups.remove_members)

    # group offsets
    list_group_offsets = blocking(group_offsets.list_group_offsets)
    alter_group_offsets = blocking(group_offsets.alter_group_offsets)
    delete_group_offsets = blocking(group_offsets.delete_group_offsets)
    describe_group_lag = blocking(group_offsets.describe_group_lag)

    # quotas
    describe_client_quotas = blocking(quotas.describe_client_quotas)
    alter_client_quotas = blocking(quotas.alter_client_quotas)

    # acls
    describe_acls = blocking(acls.describe_acls)
    create_acls = blocking(acls.create_acls)
    delete_acls = blocking(acls.delete_acls)

    # scram
    describe_user_scram_credentials = blocking(scram.describe_user_scram_credentials)
    alter_user_scram_credentials = blocking(scram.alter_user_scram_credentials)

    # delegation tokens
    create_delegation_token = blocking(tokens.create_delegation_token)
    renew_delegation_token = blocking(tokens.renew_delegation_token)
    expire_delegation_token = blocking(tokens.expire_delegation_token)
    describe_delegation_tokens = blocking(tokens.describe_delegation_tokens)

    # transactions
    list_transactions = blocking(transactions.list_transactions)
    describe_transactions = blocking(transactions.describe_transactions)
    describe_producers = blocking(transactions.describe_producers)
    abort_transaction = blocking(transactions.abort_transaction)
    fence_producers = blocking(transactions.fence_producers)

    # partitions
    elect_leaders = blocking(partitions.elect_leaders)
    alter_partition_reassignments = blocking(partitions.alter_partition_reassignments)
    list_partition_reassignments = blocking(partitions.list_partition_reassignments)

    # log dirs
    describe_log_dirs = blocking(log_dirs.describe_log_dirs)
    alter_replica_log_dirs = blocking(log_dirs.alter_replica_log_dirs)

    # cluster
    describe_cluster = blocking(cluster.describe_cluster)
    describe_metadata_quorum = blocking(cluster.describe_metadata_quorum)
    describe_features = blocking(cluster.describe_features)
    update_features = blocking(cluster.update_features)
    unregister_broker = blocking(cluster.unregister_broker)
