"""The internals of the producer, under Kafka's names."""
