"""Messages that are stored, not sent: the records of Kafka's internal topics and files."""
