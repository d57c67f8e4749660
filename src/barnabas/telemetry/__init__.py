"""What clients and the broker tell about themselves: metrics of clients (KIP-714), a log of requests, use of quotas."""
