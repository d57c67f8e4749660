"""DescribeCluster."""

from __future__ import annotations

import pytest

from barnabas.common.errors import Errors
from barnabas.metadata.cache import MetadataCache
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from unit.metadata.samples import LISTENER, broker, image_of, metadata_version


@pytest.fixture
def cache() -> MetadataCache:
    cache = MetadataCache(choose=max)
    cache.set_image(
        image_of(
            [metadata_version(), broker(4, fenced=True), broker(2), broker(1, rack="r1"), broker(3, listeners=["SSL"])]
        )
    )
    return cache


def ask(cache: MetadataCache, version: int = 2, **fields: object) -> DescribeClusterResponse:
    request = DescribeClusterRequest(**fields)  # type: ignore[arg-type]
    response = cache.describe_cluster(request, version, LISTENER, "cluster")
    assert DescribeClusterResponse.decode(response.encode(version), version).brokers == response.brokers
    return response


def test_brokers(cache: MetadataCache) -> None:
    for version in (0, 1, 2):
        response = ask(cache, version)
        assert [(b.broker_id, b.host, b.port, b.rack) for b in response.brokers] == [
            (1, "plaintext-1", 9092, "r1"),
            (2, "plaintext-2", 9092, None),
        ]
        assert (response.error_code, response.cluster_id, response.controller_id) == (0, "cluster", 2)
        assert response.endpoint_type == 1


def test_fenced_brokers_on_request(cache: MetadataCache) -> None:
    response = ask(cache, include_fenced_brokers=True)
    assert [(b.broker_id, b.is_fenced) for b in response.brokers] == [(1, False), (2, False), (4, True)]
    assert response.controller_id == 2  # a fenced broker cannot forward anything


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (2, Errors.MISMATCHED_ENDPOINT_TYPE),
        (0, Errors.UNSUPPORTED_ENDPOINT_TYPE),
        (9, Errors.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
def test_other_endpoints(cache: MetadataCache, kind: int, error: Errors) -> None:
    response = ask(cache, endpoint_type=kind)
    assert response.error_code == error
    assert response.error_message
    assert response.brokers == []
    request = DescribeClusterRequest(endpoint_type=kind)
    assert cache.describe_cluster(request, 0, LISTENER, "c").error_code == Errors.INVALID_REQUEST


def test_nobody_there() -> None:
    response = ask(MetadataCache())
    assert response.brokers == []
    assert response.controller_id == -1
