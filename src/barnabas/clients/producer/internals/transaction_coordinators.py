"""The coordinators of a producer's transactions, and their transaction protocol version."""

from __future__ import annotations

import logging
from enum import IntEnum

from barnabas.network.client.node import Node
from barnabas.network.client.node_api_versions import ApiVersions
from barnabas.protocol.api_keys import ApiKey

log = logging.getLogger(__name__)

_FIRST_WITH_EPOCH_BUMP = 3
"""The first version of InitProducerId that bumps a producer's epoch (KIP-360)."""


class CoordinatorType(IntEnum):
    """The kinds of coordinators; the numbers are those of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


class TransactionCoordinators:
    """Holds the coordinators by kind, and the cluster's features. Guarded by the transaction manager's lock."""

    __slots__ = ("_api_versions", "_features_epoch", "_nodes", "is_transaction_v2_enabled", "supports_bumping_epoch")

    def __init__(self, api_versions: ApiVersions) -> None:
        self._api_versions = api_versions
        self._nodes: dict[CoordinatorType, Node] = {}
        self._features_epoch = -1
        self.supports_bumping_epoch = False
        """Whether the transaction coordinator bumps the epoch on request."""
        self.is_transaction_v2_enabled = False
        """Whether brokers add partitions to a transaction, and each transaction has its own epoch (KIP-890)."""

    def get(self, kind: CoordinatorType) -> Node | None:
        return self._nodes.get(kind)

    def set(self, kind: CoordinatorType, node: Node) -> None:
        log.info("Discovered %s coordinator %s", kind.name.lower(), node)
        self._nodes[kind] = node

    def forget(self, kind: CoordinatorType) -> None:
        self._nodes.pop(kind, None)

    def handle_coordinator_ready(self) -> None:
        """Looks up what the transaction coordinator supports, once it is connected."""
        node = self._nodes.get(CoordinatorType.TRANSACTION)
        versions = None if node is None else self._api_versions.get(node.id_string)
        spoken = None if versions is None else versions.supported.get(ApiKey.INIT_PRODUCER_ID)
        self.supports_bumping_epoch = spoken is not None and spoken.highest >= _FIRST_WITH_EPOCH_BUMP

    def update_transaction_version(self) -> bool:
        """Looks up the transaction version that the cluster has agreed on. True if it has moved to version 2."""
        features = self._api_versions.finalized_features
        if self._features_epoch >= features.epoch:
            return False
        self._features_epoch = features.epoch
        before = self.is_transaction_v2_enabled
        self.is_transaction_v2_enabled = features.levels.get("transaction.version", 0) >= 2
        return self.is_transaction_v2_enabled and not before

    @property
    def can_handle_abortable_error(self) -> bool:
        """Whether the producer gets a new epoch after an abort and so can continue."""
        return self.supports_bumping_epoch or self.is_transaction_v2_enabled

    @property
    def need_to_trigger_epoch_bump_from_client(self) -> bool:
        """Whether the producer must request that epoch, because the end of a transaction does not return it."""
        return self.supports_bumping_epoch and not self.is_transaction_v2_enabled
