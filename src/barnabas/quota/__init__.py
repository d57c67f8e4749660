"""Quotas: limit the use of the broker by each client, and throttle clients that exceed their limits."""
