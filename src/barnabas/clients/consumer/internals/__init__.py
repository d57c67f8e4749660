"""The internals of the consumer, under Kafka's class names."""
