"""Barnabas beside Apache Kafka: the same clients, the same cases, one run. ``python -m benchmarks.peers``."""
