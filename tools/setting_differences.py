"""Where a setting differs from the one of Apache Kafka with the same name, for the reference on the site.

``tests/unit/broker/config/test_against_kafka.py`` compares all definitions with those in Kafka's jars: it fails for a
difference that is not listed here.
"""

from __future__ import annotations

from typing import Final

JAVA_CLASS: Final = "Kafka's default is a Java class; here the built-in implementation is used if nothing is set."
ANY_CLIENT: Final = {
    "metric.reporters": "Kafka's default is a Java class, which exports metrics through JMX.",
    "sasl.oauthbearer.jwt.retriever.class": JAVA_CLASS,
    "sasl.oauthbearer.jwt.validator.class": JAVA_CLASS,
}

BROKER: Final = ANY_CLIENT | {
    "advertised.listeners": "It can be changed while the broker runs; in Kafka it is read-only.",
    "group.share.persister.class.name": "Kafka's default is a Java class; there are no share groups yet.",
    "listener.security.protocol.map": "The default has the same pairs in another order.",
    "log.dir": "Kafka's default is `/tmp/kafka-logs`. Here `log.dirs` or `--data-dir` says where the data is.",
    "num.network.threads": "Kafka's default is 3. Here it is 1 on an interpreter with a global lock (GIL), else 3.",
    "principal.builder.class": JAVA_CLASS,
    "process.roles": "`broker` alone is refused, because there is no replication between nodes yet.",
    "socket.receive.buffer.bytes": "It is applied only if it is set. Otherwise the operating system sizes the buffer.",
}
CLIENTS: Final = {
    "producer": ANY_CLIENT
    | {
        "key.serializer": "Kafka requires it. Here keys are bytes if it is not set.",
        "value.serializer": "Kafka requires it. Here values are bytes if it is not set.",
        "send.buffer.bytes": "It is applied only if it is set. Otherwise the operating system sizes the buffer.",
    },
    "consumer": ANY_CLIENT
    | {
        "group.protocol": "Kafka's default is `classic`. Here the newer protocol is used where the broker supports it.",
        "key.deserializer": "Kafka requires it. Here keys are bytes if it is not set.",
        "partition.assignment.strategy": "The same strategies. They are named, where Kafka has Java classes.",
        "receive.buffer.bytes": "It is applied only if it is set. Otherwise the operating system sizes the buffer.",
        "value.deserializer": "Kafka requires it. Here values are bytes if it is not set.",
    },
    "admin-client": ANY_CLIENT
    | {
        "bootstrap.servers": "It is required: there is no `bootstrap.controllers`.",
        "enable.metrics.push": "Kafka's default is `false`.",
    },
}
ONLY_HERE: Final = frozenset(
    {
        "batch.max.size",
        "local.socket.enable",
    }
)
"""Settings of clients that Kafka does not have. The definitions in its jars are of version 4.3, ours of 4.4."""
