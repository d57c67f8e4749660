"""Followers: copies partitions from a leader.

    fetcher             fetch, truncate where the logs diverge, append, back off after an error
    replica_fetchers    the interface of the fetchers of a broker
    alter_log_dirs      moves a replica to another directory: the leader is the same broker (KIP-113)

Start with `fetcher`.
"""
