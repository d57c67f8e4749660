"""Transactions: producer ids, and what is written under them."""
