"""The broker: request handling on top of logs, replicas and metadata."""
