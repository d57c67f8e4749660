"""Raft: the replicated log under the cluster's metadata."""
