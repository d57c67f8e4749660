"""What a client tells the cluster about itself (KIP-714)."""
