"""Version negotiation: the first exchange on every connection (KIP-35, KIP-511).

The client sends the newest version of ApiVersions that it has. A node that does not know that version responds in
version 0, which every client can read, with UNSUPPORTED_VERSION and, since Kafka 2.4, the versions that it does have:

    client                                   node, which has ApiVersions 0 to 3
      ApiVersions v5          ->
                              <-             v0: UNSUPPORTED_VERSION, ApiVersions 0 to 3
      ApiVersions v3          ->
                              <-             v3: all its APIs and their versions

From then on each request is sent in the newest version that both have.
"""

from __future__ import annotations

from barnabas.common.errors import Errors
from barnabas.network.client.client_config import NetworkClientConfig
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

NEWEST = ApiKey.API_VERSIONS.stable_versions.highest

_MAX_INT32 = 2**31 - 1
_LARGEST_BROKER_ID = _MAX_INT32 // 2
"""Larger numbers denote a second connection to a broker, which a consumer has to its coordinator. They count down
from the largest number, so the broker's own id can be recovered from them."""


def version_to_try_next(tried: int, response: ApiVersionsResponse) -> int | None:
    """Returns the version to try after UNSUPPORTED_VERSION; None if there is nothing left to try.

    Always an older one than before, so that a node that rejects every version cannot keep a client busy.
    """
    if response.error_code != Errors.UNSUPPORTED_VERSION or tried == 0:
        return None
    for row in response.api_keys:
        if row.api_key == ApiKey.API_VERSIONS:
            newest = min(row.max_version, tried - 1)
            return newest if newest >= max(row.min_version, 0) else 0
    return 0


class VersionNegotiation:
    """The connected nodes that have yet to be asked for their API versions, and the request version for each."""

    def __init__(self, config: NetworkClientConfig) -> None:
        self._software = (config.client_software_name, config.client_software_version)
        self.pending: dict[str, int] = {}
        """The request version by node id."""

    def begin(self, node_id: str) -> None:
        self.pending[node_id] = NEWEST

    def retry(self, node_id: str, version: int) -> None:
        self.pending[node_id] = version

    def forget(self, node_id: str) -> None:
        self.pending.pop(node_id, None)

    def request(self, node_id: int, cluster_id: str | None) -> ApiVersionsRequest:
        """Returns the ApiVersions request, with the intended node if its id is certain (KIP-1242)."""
        name, version = self._software
        request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
        if cluster_id is not None and node_id >= 0:
            request.cluster_id = cluster_id
            request.node_id = _MAX_INT32 - node_id if node_id > _LARGEST_BROKER_ID else node_id
        return request
