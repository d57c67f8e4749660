"""Replicas: partitions, appends and reads, delayed produce and fetch, fetch sessions, follower fetchers."""
