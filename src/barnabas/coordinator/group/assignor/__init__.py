"""Server-side assignors: who gets which partitions of a consumer group."""
