"""Quotas: how much of the broker each client may have, and what happens to those who want more."""
