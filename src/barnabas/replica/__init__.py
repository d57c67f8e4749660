"""Replicas: the partitions of a broker, and the requests that read and write them.

    replica_manager    the interface of the handlers
    partition/         a partition: leader or follower, ISR, high watermark
    append/            the append path, and produce requests that wait for followers
    fetch/             the fetch path, fetch sessions, and fetch requests that wait for records
    follower/          copies partitions from a leader
    replica_changes    applies the metadata log to the partitions of this broker

Start with `replica_manager`, then `partition/partition.py`.
"""
