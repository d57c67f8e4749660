"""Messages that never cross the wire by themselves: the records of Kafka's internal topics and files."""
