"""Security: principals, ACLs and authorization."""
