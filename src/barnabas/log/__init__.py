"""Storage: partitions as segments of record batches on disk, in Apache Kafka's format.

    unified_log    a partition's log: append, read, truncate, delete; local_log: its files
    segment/       one file of batches; index/: its offset, time and transaction indexes
    producers/     idempotence and transactions: what a log knows of its producers
    cleaner/       compaction; retention: deletion by time and size
    dirs/          log directories, their checkpoints, identity and failures
    manager/       all logs of a broker; config/: the settings of a log

Start with `unified_log`, then `segment/log_segment.py`.
"""
