"""Who the controller is, and where."""

from __future__ import annotations

from barnabas.broker.to_controller.controller_node_provider import ControllerNodeProvider
from barnabas.common.identifiers import Uuid
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import EMPTY_IMAGE, MetadataImage
from barnabas.metadata.provenance import MetadataProvenance
from barnabas.metadata.publisher import SnapshotManifest
from barnabas.network.client.node import Node
from barnabas.protocol.internal.metadata import ControllerEndpoint, RegisterControllerRecord
from barnabas.raft.client import LeaderAndEpoch

ONE, TWO = Node(1, "one", 9093), Node(2, "two", 9093)
PROVENANCE = MetadataProvenance(5, 1, 0, True)


def image_with(*controllers: tuple[int, str, str]) -> MetadataImage:
    delta = MetadataDelta(EMPTY_IMAGE)
    for node_id, listener, host in controllers:
        endpoint = ControllerEndpoint(name=listener, host=host, port=9093, security_protocol=0)
        delta.replay(
            RegisterControllerRecord(
                controller_id=node_id, incarnation_id=Uuid(b"i" * 16), end_points=[endpoint], features=[]
            )
        )
    return delta.apply(PROVENANCE)


def publish(nodes: ControllerNodeProvider, image: MetadataImage) -> None:
    nodes.on_metadata_update(MetadataDelta(image), image, SnapshotManifest(PROVENANCE, 0))


def test_the_controller_is_the_voter_that_leads() -> None:
    nodes = ControllerNodeProvider({1: ONE, 2: TWO})
    assert nodes() is None
    nodes.on_controller_change(LeaderAndEpoch(2, 7))
    assert nodes() == TWO
    nodes.on_controller_change(LeaderAndEpoch(None, 8))
    assert nodes() is None
    nodes.on_controller_change(LeaderAndEpoch(3, 9))
    assert nodes() is None, "nobody knows where it is"


def test_who_can_be_asked_is_asked() -> None:
    leader: list[int | None] = [None]
    nodes = ControllerNodeProvider({1: ONE, 2: TWO}, leader_id=lambda: leader[0])
    nodes.on_controller_change(LeaderAndEpoch(2, 7))
    assert nodes() is None
    leader[0] = 1
    assert nodes() == ONE


def test_a_controller_that_has_registered_knows_best_where_it_is() -> None:
    nodes = ControllerNodeProvider({1: ONE}, "CONTROLLER")
    nodes.on_controller_change(LeaderAndEpoch(1, 7))
    publish(nodes, image_with((1, "CONTROLLER", "new"), (2, "CONTROLLER", "two")))
    assert nodes() == Node(1, "new", 9093)
    nodes.on_controller_change(LeaderAndEpoch(2, 8))
    assert nodes() == TWO
    publish(nodes, image_with((1, "OTHER", "new")))
    nodes.on_controller_change(LeaderAndEpoch(1, 9))
    assert nodes() == ONE


def test_whoever_waits_is_told_of_news_and_of_nothing_else() -> None:
    nodes = ControllerNodeProvider({1: ONE}, "CONTROLLER")
    calls: list[Node | None] = []

    def listener() -> None:
        calls.append(nodes())

    nodes.add_listener(listener)
    nodes.on_controller_change(LeaderAndEpoch(1, 7))
    image = image_with((1, "CONTROLLER", "new"))
    publish(nodes, image)
    publish(nodes, image)
    publish(nodes, image_with((1, "CONTROLLER", "new")))
    nodes.set_own(Node(1, "one", 9999))
    assert calls == [ONE, Node(1, "new", 9093), Node(1, "one", 9999)]
    nodes.remove_listener(listener)
    nodes.changed()
    assert len(calls) == 3


def test_a_node_knows_where_its_own_controller_is_whatever_was_registered_before_a_restart() -> None:
    """On a port that was another one then. Who believed the metadata could never correct them."""
    nodes = ControllerNodeProvider({1: ONE}, "CONTROLLER", lambda: 1)
    own = Node(1, "127.0.0.1", 40_000)
    nodes.set_own(own)
    publish(nodes, image_with((1, "CONTROLLER", "old")))
    assert nodes() == own
