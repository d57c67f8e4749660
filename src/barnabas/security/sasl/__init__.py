"""SASL: how a client proves its identity, on both ends of a connection.

    mechanism               the interfaces of the mechanisms, and their state tables
    plain, scram, oauthbearer, gssapi    one mechanism each, both ends of it
    mechanism_table         which mechanisms exist
    server_authenticator    the broker's end of the Kafka exchange: ApiVersions, SaslHandshake, SaslAuthenticate
    client_authenticator    the client's end of it
    channel_authenticator   moves the frames of both between a channel and its authenticator
    oauth_token, jwks, token_validator, token_provider, oauth_login    tokens for OAUTHBEARER: checked, and obtained
    jaas                    parses ``sasl.jaas.config``

Everything but `channel_authenticator`, `jwks`, `token_provider` and `oauth_login` is sans-I/O: bytes in, bytes or a
decision out. Start with `server_authenticator`, then read `scram`.
"""
