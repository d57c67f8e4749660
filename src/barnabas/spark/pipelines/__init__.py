"""Pipelines: what brokers write about themselves and their clients, as tables. `docs/pipelines.md` describes them."""
