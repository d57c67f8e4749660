"""Groups whose assignment the coordinator computes (KIP-848)."""
