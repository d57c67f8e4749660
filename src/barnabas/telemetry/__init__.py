"""Telemetry of clients and the broker: client metrics (KIP-714), a log of requests, usage of quotas, export by OTLP."""
