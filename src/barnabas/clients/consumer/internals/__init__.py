"""The inside of the consumer, under Kafka's class names."""
