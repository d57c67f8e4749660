"""Record batches: Kafka's format for records on the wire and on disk."""
