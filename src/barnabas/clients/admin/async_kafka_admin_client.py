"""The admin client for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

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
from barnabas.clients.admin.internals.operation import Operation
from barnabas.clients.admin.internals.steps import Promise
from barnabas.clients.admin.kafka_admin_client import ADMIN_GROUP, KafkaAdminClient
from barnabas.common.identifiers import Uuid
from barnabas.metrics.metric import KafkaMetric
from barnabas.metrics.names import MetricName

if TYPE_CHECKING:
    from barnabas.clients.typed_settings import AdminArguments

P = ParamSpec("P")
R = TypeVar("R")


def awaited(
    operation: Callable[Concatenate[Operation, P], Coroutine[Promise[Any], None, R]],
) -> Callable[Concatenate[AsyncKafkaAdminClient, P], Awaitable[R]]:
    """Makes a method that starts an operation and awaits its result."""

    @wraps(operation)
    async def method(admin: AsyncKafkaAdminClient, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await asyncio.wrap_future(admin.sync.submit(lambda context: operation(context, *args, **kwargs)))

    return method


class AsyncKafkaAdminClient:
    """A `KafkaAdminClient` that waits without blocking the event loop.

        async with AsyncKafkaAdminClient(bootstrap_servers="localhost:9092") as admin:
            await admin.create_topics([NewTopic("orders", num_partitions=3)])

    It is the same client, with the same thread, the same operations and the same results.
    """

    def __init__(self, config: Mapping[str, object] | None = None, /, **settings: Unpack[AdminArguments]) -> None:
        """Takes the arguments of `KafkaAdminClient`."""
        self._admin = KafkaAdminClient(config, **settings)

    @property
    def sync(self) -> KafkaAdminClient:
        """The underlying client."""
        return self._admin

    def with_timeout(self, timeout_ms: int) -> AsyncKafkaAdminClient:
        """Returns the same client with this timeout for each operation."""
        view = object.__new__(type(self))
        view._admin = self._admin.with_timeout(timeout_ms)
        return view

    def metrics(self) -> dict[MetricName, KafkaMetric]:
        """Returns all metrics by name, in ``admin-client-metrics``."""
        return self._admin.metrics()

    def metric(self, name: str, group: str = ADMIN_GROUP, **tags: str) -> Any:
        """Returns the current value of one metric; tags have underscores for hyphens."""
        return self._admin.metric(name, group, **tags)

    async def client_instance_id(self, timeout: float) -> Uuid:  # noqa: ASYNC109 - passed to the underlying client
        """Returns this client's instance id for telemetry (KIP-714)."""
        return await asyncio.to_thread(self._admin.client_instance_id, timeout)

    async def close(self, timeout_ms: int | None = None) -> None:
        """Closes the client after the running operations have ended, or after the timeout."""
        await asyncio.to_thread(self._admin.close, timeout_ms)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_exception: object) -> None:
        await self.close(0 if kind is not None else None)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._admin.config.bootstrap_servers)})"

    # topics
    create_topics = awaited(topics.create_topics)
    delete_topics = awaited(topics.delete_topics)
    delete_topics_by_id = awaited(topics.delete_topics_by_id)
    create_partitions = awaited(topics.create_partitions)
    list_topics = awaited(topics.list_topics)
    describe_topics = awaited(topics.describe_topics)
    describe_topics_by_id = awaited(topics.describe_topics_by_id)

    # offsets
    list_offsets = awaited(offsets.list_offsets)
    delete_records = awaited(offsets.delete_records)

    # configs
    describe_configs = awaited(configs.describe_configs)
    incremental_alter_configs = awaited(configs.incremental_alter_configs)
    list_config_resources = awaited(configs.list_config_resources)
    list_client_metrics_resources = awaited(configs.list_client_metrics_resources)

    # groups
    list_groups = awaited(groups.list_groups)
    describe_groups = awaited(groups.describe_groups)
    delete_groups = awaited(groups.delete_groups)
    remove_members = awaited(groups.remove_members)

    # group offsets
    list_group_offsets = awaited(group_offsets.list_group_offsets)
    alter_group_offsets = awaited(group_offsets.alter_group_offsets)
    delete_group_offsets = awaited(group_offsets.delete_group_offsets)
    describe_group_lag = awaited(group_offsets.describe_group_lag)

    # quotas
    describe_client_quotas = awaited(quotas.describe_client_quotas)
    alter_client_quotas = awaited(quotas.alter_client_quotas)

    # acls
    describe_acls = awaited(acls.describe_acls)
    create_acls = awaited(acls.create_acls)
    delete_acls = awaited(acls.delete_acls)

    # scram
    describe_user_scram_credentials = awaited(scram.describe_user_scram_credentials)
    alter_user_scram_credentials = awaited(scram.alter_user_scram_credentials)

    # delegation tokens
    create_delegation_token = awaited(tokens.create_delegation_token)
    renew_delegation_token = awaited(tokens.renew_delegation_token)
    expire_delegation_token = awaited(tokens.expire_delegation_token)
    describe_delegation_tokens = awaited(tokens.describe_delegation_tokens)

    # transactions
    list_transactions = awaited(transactions.list_transactions)
    describe_transactions = awaited(transactions.describe_transactions)
    describe_producers = awaited(transactions.describe_producers)
    abort_transaction = awaited(transactions.abort_transaction)
    fence_producers = awaited(transactions.fence_producers)

    # partitions
    elect_leaders = awaited(partitions.elect_leaders)
    alter_partition_reassignments = awaited(partitions.alter_partition_reassignments)
    list_partition_reassignments = awaited(partitions.list_partition_reassignments)

    # log dirs
    describe_log_dirs = awaited(log_dirs.describe_log_dirs)
    alter_replica_log_dirs = awaited(log_dirs.alter_replica_log_dirs)

    # cluster
    describe_cluster = awaited(cluster.describe_cluster)
    describe_metadata_quorum = awaited(cluster.describe_metadata_quorum)
    describe_features = awaited(cluster.describe_features)
    update_features = awaited(cluster.update_features)
    unregister_broker = awaited(cluster.unregister_broker)
