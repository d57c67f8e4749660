"""Storage: partitions as segments of record batches on disk, with their indexes, in Apache Kafka's format."""
