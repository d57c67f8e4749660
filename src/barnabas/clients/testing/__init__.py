"""A Kafka cluster in memory, for tests of clients: no sockets, no threads, no waiting.

    cluster = ScriptedCluster(topics={"orders": 3})
    producer = cluster.producer(linger_ms=0)
    future = producer.send("orders", b"...")
    cluster.run_until(producer, future.done)
    assert cluster.values("orders", future.result().partition) == [b"..."]

The producer, its network client and its bytes are real; only the layers below are simulated. Time is a `MockClock`,
which advances when the producer waits. A test injects failures:

    cluster.fail_next(ApiKey.PRODUCE, Errors.NOT_ENOUGH_REPLICAS)     # the next response is an error
    cluster.fates.append(Fate(lose_response=True))                      # written, but the response is lost
    cluster.move_leader("orders", 0, to=2)                            # another node leads it now
    cluster.stop(1)                                                   # a node is down, until start(1)
    cluster.crash(1)                                                  # restarted, with little producer state

The brokers of this cluster check sequence numbers as real ones do: they recognise the last five batches of a producer,
and reject a gap.
"""

from __future__ import annotations

from barnabas.clients.testing.driving_clock import DrivingClock
from barnabas.clients.testing.fate import Fate, Handled
from barnabas.clients.testing.in_memory_selector import InMemorySelector
from barnabas.clients.testing.partition_log import StoredRecord
from barnabas.clients.testing.scripted_cluster import ScriptedCluster

__all__ = ["DrivingClock", "Fate", "Handled", "InMemorySelector", "ScriptedCluster", "StoredRecord"]
