"""How the producer works inside, under Kafka's names for things."""
