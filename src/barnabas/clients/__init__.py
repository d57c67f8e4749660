"""Clients: the producer, what the others share, and what a test of a client needs."""
