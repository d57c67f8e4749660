"""The collaborators that every membership manager of a group needs."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.clients.consumer.internals.background_events import BackgroundEventQueue
from barnabas.clients.consumer.internals.commit_request_manager import CommitRequestManager
from barnabas.clients.consumer.internals.consumer_metadata import ConsumerMetadata
from barnabas.clients.consumer.internals.coordinator_request_manager import CoordinatorRequestManager
from barnabas.clients.consumer.internals.group_config import GroupConfig
from barnabas.clients.consumer.internals.group_events import RebalanceListenerInvoker
from barnabas.clients.consumer.internals.group_metrics import GroupMetrics
from barnabas.clients.consumer.internals.subscription_state import SubscriptionState


class GroupParts(NamedTuple):
    config: GroupConfig
    subscriptions: SubscriptionState
    metadata: ConsumerMetadata
    coordinator: CoordinatorRequestManager
    commits: CommitRequestManager
    listeners: RebalanceListenerInvoker
    events: BackgroundEventQueue
    metrics: GroupMetrics
