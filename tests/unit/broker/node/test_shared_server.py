"""What broker and controller of one node share."""

from __future__ import annotations

import threading

from barnabas.embedded import EmbeddedBroker


def test_there_is_one_copy_of_the_metadata_and_of_its_threads() -> None:
    with EmbeddedBroker() as broker:
        server = broker.server
        assert server.broker is not None
        assert server.controller is not None
        shared = server.shared
        assert shared.raft is not None
        names = [thread.name for thread in threading.enumerate()]
        assert names.count("kafka-1-raft-io-thread") == 1
        assert names.count("kafka-1-metadata-loader-event-handler") == 1
        assert server.broker.cache.image.topics is server.controller.cache.image.topics


def test_everybody_finds_the_controller_at_its_real_port() -> None:
    with EmbeddedBroker() as broker:
        node = broker.server.shared.controller_nodes()
        assert node is not None
        assert node.port > 0
        assert broker.server.controller is not None
        assert node.port in {one.endpoint.port for one in broker.server.controller.processors}
