"""Replicas: partitions and who reads and writes them; delayed produce and fetch, fetch sessions, follower fetchers."""
