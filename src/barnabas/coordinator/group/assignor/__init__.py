"""Server-side assignors: assign partitions to the members of a consumer group."""
