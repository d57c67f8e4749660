"""Kafka's messages: one module per API, holding its request, its response and the structs inside them.

Nothing is imported here; ``ApiKey.FETCH.request`` imports what it needs.
"""
