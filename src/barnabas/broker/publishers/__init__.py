"""Applies metadata changes to the parts of a broker.

    broker_metadata_publisher        the order in which parts learn of a change
    client_quota_metadata_manager    client quotas; replication_throttles: replication quotas
    lifecycle_publisher              progress of the lifecycle manager
    applied_metadata                 read your writes: waits until a change is applied

Start with `broker_metadata_publisher`.
"""
