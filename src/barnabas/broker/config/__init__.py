"""A node's configuration: what can be set, what is set, and what may change while it runs."""
