"""The transaction coordinator, and the allocation of producer IDs."""
