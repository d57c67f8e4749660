"""A partition of which this broker has a replica.

    partition            roles, leader epochs, appends and reads
    partition_role       leader, follower or none, and the log that goes with it
    partition_isr        the leader's view of its followers: the ISR and the high watermark
    remote_replica       the state of one follower; alter_partition: ISR changes through the controller
    hosted_partitions    all partitions of this broker, online and offline

Start with `partition`.
"""
