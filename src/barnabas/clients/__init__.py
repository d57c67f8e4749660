"""Clients: producer, consumer and admin client, their common code, and test support."""
