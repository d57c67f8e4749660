"""Security: who a client is, and what it may do.

    tls/                 key stores, TLS contexts, the principals of certificates
    channel_factories    transport and authenticator of the secured protocols
    principal            identities
    authorizer, standard_authorizer, acl*    permissions

Start with `channel_factories` for authentication and `authorizer` for authorization.
"""
