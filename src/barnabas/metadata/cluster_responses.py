"""Responses about the nodes of a cluster: the brokers in a Metadata response, and the DescribeCluster API."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barnabas.common.errors import Errors
from barnabas.metadata.endpoint import Node
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.topic_responses import missing_topic, requested_topics, topic_metadata
from barnabas.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker

Choose = Callable[[Sequence[int]], int]
"""Picks one of several IDs."""

NO_CONTROLLER_ID = -1

BROKER_ENDPOINTS = 1
CONTROLLER_ENDPOINTS = 2


def broker_nodes(image: MetadataImage, listener: str, include_fenced: bool = False) -> list[Node]:
    """Returns the brokers that have an address on this listener, by ID."""
    return [
        node
        for _, broker in sorted(image.cluster.brokers.items())
        if (include_fenced or not broker.fenced) and (node := broker.node(listener)) is not None
    ]


def choose_controller(nodes: Sequence[Node], choose: Choose) -> int:
    """Returns the node that clients see as the controller: any active broker, -1 if there is none.

    Clients cannot reach the real controller. They send controller requests to this broker, which forwards them
    (KIP-590). A different one each time spreads the load.
    """
    ids = [node.id for node in nodes if not node.is_fenced]
    return choose(ids) if ids else NO_CONTROLLER_ID


def metadata_response(
    image: MetadataImage,
    request: MetadataRequest,
    version: int,
    listener: str,
    cluster_id: str,
    choose: Choose,
) -> MetadataResponse:
    """Returns the complete Metadata response for a client that is authorized for everything, without topic creation."""
    asked = requested_topics(image, request, version)
    known = topic_metadata(image, asked.names, listener, version)
    missing = []
    if len(known) < len(asked.names):
        missing = [missing_topic(name) for name in asked.names if name not in image.topics.by_name]
    nodes = broker_nodes(image, listener)
    return MetadataResponse(
        brokers=metadata_brokers(nodes),
        cluster_id=cluster_id,
        controller_id=choose_controller(nodes, choose),
        topics=[*asked.unknown_ids, *known, *missing],
    )


def metadata_brokers(nodes: Sequence[Node]) -> list[MetadataResponseBroker]:
    return [MetadataResponseBroker(node_id=node.id, host=node.host, port=node.port, rack=node.rack) for node in nodes]


def describe_cluster(
    image: MetadataImage,
    request: DescribeClusterRequest,
    version: int,
    listener: str,
    cluster_id: str,
    choose: Choose,
) -> DescribeClusterResponse:
    """Returns the response of a broker. Controllers must be requested from a controller, so that is an error here."""
    if request.endpoint_type != BROKER_ENDPOINTS:
        if request.endpoint_type == CONTROLLER_ENDPOINTS:
            error = Errors.MISMATCHED_ENDPOINT_TYPE
            message = "the request is for controllers, but this is an endpoint of brokers"
        else:
            error = Errors.UNSUPPORTED_ENDPOINT_TYPE
            message = f"unknown endpoint type {request.endpoint_type}"
        return DescribeClusterResponse(
            error_code=Errors.INVALID_REQUEST if version == 0 else error, error_message=message
        )
    nodes = broker_nodes(image, listener, request.include_fenced_brokers)
    return DescribeClusterResponse(
        endpoint_type=BROKER_ENDPOINTS,
        cluster_id=cluster_id,
        controller_id=choose_controller(nodes, choose),
        brokers=[
            DescribeClusterBroker(
                broker_id=node.id, host=node.host, port=node.port, rack=node.rack, is_fenced=node.is_fenced
            )
            for node in nodes
        ],
    )
