"""TLS above the transport: key stores, contexts and the principals of certificates.

    ssl_config      the ``ssl.*`` settings as one frozen value
    stores          reads key and trust stores: PEM, PKCS12, JKS
    ssl_factory     builds the ``ssl.SSLContext`` of a listener or a client, and replaces it while running
    principal       the principal of a client's certificate, with ``ssl.principal.mapping.rules``
    certificate, jks, cipher_suites    the formats and names that those need

Start with `ssl_factory`. `barnabas.security.channel_factories` puts it together with the transport.
"""
