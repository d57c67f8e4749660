"""The API versions of each node: the outcome of version negotiation (KIP-35)."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from barnabas.common.errors import UnsupportedVersionError
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.protocol.versions import VersionRange

_APIS = {int(key): key for key in ApiKey}


class NodeApiVersions:
    """The APIs of one node, each with its range of versions, and the features of its cluster."""

    __slots__ = ("finalized_features", "finalized_features_epoch", "supported", "supported_features", "unknown_apis")

    def __init__(
        self,
        api_versions: Iterable[ApiVersion],
        *,
        supported_features: Mapping[str, VersionRange] | None = None,
        finalized_features: Mapping[str, int] | None = None,
        finalized_features_epoch: int = -1,
    ) -> None:
        self.supported: dict[ApiKey, VersionRange] = {}
        self.unknown_apis: dict[int, VersionRange] = {}
        """APIs of a node that is newer than this client."""
        for row in api_versions:
            spoken = VersionRange(row.min_version, row.max_version)
            known = _APIS.get(row.api_key)
            if known is None:
                self.unknown_apis[row.api_key] = spoken
            else:
                self.supported[known] = spoken
        self.supported_features = dict(supported_features or {})
        self.finalized_features = dict(finalized_features or {})
        """The finalized level of each feature of the cluster."""
        self.finalized_features_epoch = finalized_features_epoch

    @classmethod
    def of_response(cls, response: ApiVersionsResponse) -> NodeApiVersions:
        return cls(
            response.api_keys,
            supported_features={
                feature.name: VersionRange(feature.min_version, feature.max_version)
                for feature in response.supported_features
            },
            finalized_features={feature.name: feature.max_version_level for feature in response.finalized_features},
            finalized_features_epoch=response.finalized_features_epoch,
        )

    def latest_usable_version(self, api_key: ApiKey, allowed: VersionRange | None = None) -> int:
        """Returns the newest version that the node has and the caller allows, or :class:`UnsupportedVersionError`."""
        wanted = api_key.stable_versions if allowed is None else allowed
        spoken = self.supported.get(api_key)
        if spoken is None:
            raise UnsupportedVersionError(f"the node does not serve {api_key.title}")
        newest = min(wanted.highest, spoken.highest)
        if newest < spoken.lowest or newest < wanted.lowest:
            raise UnsupportedVersionError(
                f"no version of {api_key.title} that both sides speak: the node has {spoken}, the request can go out "
                f"as {wanted}"
            )
        return newest

    def __repr__(self) -> str:
        rows = [f"{key.title} {spoken}" for key, spoken in sorted(self.supported.items())]
        rows += [f"API {number} {spoken}" for number, spoken in sorted(self.unknown_apis.items())]
        return f"NodeApiVersions({', '.join(rows)})"


class FinalizedFeatures(NamedTuple):
    """The finalized features of the cluster, as of a metadata offset; -1 if not known yet."""

    epoch: int
    levels: Mapping[str, int]


class ApiVersions:
    """The API versions of all nodes that a client is connected to.

    The network client writes and others read: a transaction manager needs the level of ``transaction.version`` on
    whatever thread it runs.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Guards both fields below. Nothing else is locked inside it."""
        self._by_node: dict[str, NodeApiVersions] = {}
        self._finalized = FinalizedFeatures(-1, {})

    def update(self, node_id: str, versions: NodeApiVersions) -> None:
        with self._lock:
            self._by_node[node_id] = versions
            # Nodes learn new levels one after the other: an older epoch comes from a node that lags behind.
            if versions.finalized_features_epoch > self._finalized.epoch:
                self._finalized = FinalizedFeatures(versions.finalized_features_epoch, versions.finalized_features)

    def remove(self, node_id: str) -> None:
        with self._lock:
            self._by_node.pop(node_id, None)

    def get(self, node_id: str) -> NodeApiVersions | None:
        return self._by_node.get(node_id)  # reading one field needs no lock

    @property
    def finalized_features(self) -> FinalizedFeatures:
        with self._lock:
            return self._finalized
