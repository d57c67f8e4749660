"""Kafka's wire protocol: declared messages and the codecs compiled from them."""
