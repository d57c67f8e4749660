"""The settings of TLS, SASL and delegation tokens."""

from __future__ import annotations

from typing import Final

from barnabas.broker.config.terms import (
    BOOLEAN,
    CLASS,
    DOUBLE,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    PASSWORD,
    SHORT,
    STRING,
    at_least,
    between,
    distinct,
    one_of,
    one_of_in_any_case,
)
from barnabas.common.config_def import ConfigDef

SECURITY_CONFIG_DEF: Final = ConfigDef()
_define: Final = SECURITY_CONFIG_DEF.define

# fmt: off

# Authentication.
_define("principal.builder.class", CLASS, None, None, MEDIUM,
    "The class that builds the principal of a connection from the result of its authentication.")
_define("connections.max.reauth.ms", LONG, 0, None, MEDIUM,
    "How long a SASL session is valid before the client must authenticate again; 0 for no limit.")
_define("security.providers", STRING, None, None, LOW, "Classes that provide security algorithms.")

# TLS.
_define("ssl.protocol", STRING, "TLSv1.3", None, MEDIUM, "The TLS version.")
_define("ssl.provider", STRING, None, None, MEDIUM, "The TLS provider.")
_define("ssl.cipher.suites", LIST, "", distinct(empty=True, null=False), MEDIUM,
    "The cipher suites that the broker accepts. Empty: all.")
_define("ssl.enabled.protocols", LIST, "TLSv1.2,TLSv1.3", distinct(empty=True, null=False), MEDIUM,
    "The TLS versions that the broker accepts.")
_define("ssl.client.auth", STRING, "none", one_of("required", "requested", "none"), MEDIUM,
    "Whether clients must present a certificate: required, requested or none.")
_define("ssl.endpoint.identification.algorithm", STRING, "https", None, LOW,
    "How the host name in a certificate is verified. Empty: not verified.")
_define("ssl.principal.mapping.rules", STRING, "DEFAULT", None, LOW,
    "Rules that map the distinguished name in a certificate to a principal.")
_define("ssl.allow.dn.changes", BOOLEAN, False, None, LOW,
    "Whether a new key store may have a different distinguished name.")
_define("ssl.allow.san.changes", BOOLEAN, False, None, LOW,
    "Whether a new key store may have different subject alternative names.")
_define("ssl.keystore.type", STRING, "JKS", None, MEDIUM, "The format of the key store.")
_define("ssl.keystore.location", STRING, None, None, MEDIUM, "The file of the key store.")
_define("ssl.keystore.password", PASSWORD, None, None, MEDIUM, "The password of the key store.")
_define("ssl.key.password", PASSWORD, None, None, MEDIUM, "The password of the private key.")
_define("ssl.keystore.key", PASSWORD, None, None, MEDIUM, "The private key, in PEM format.")
_define("ssl.keystore.certificate.chain", PASSWORD, None, None, MEDIUM,
    "The certificate chain of the private key, in PEM format.")
_define("ssl.truststore.type", STRING, "JKS", None, MEDIUM, "The format of the trust store.")
_define("ssl.truststore.location", STRING, None, None, MEDIUM, "The file of the trust store.")
_define("ssl.truststore.password", PASSWORD, None, None, MEDIUM, "The password of the trust store.")
_define("ssl.truststore.certificates", PASSWORD, None, None, MEDIUM,
    "The trusted certificates, in PEM format.")
_define("ssl.keymanager.algorithm", STRING, "SunX509", None, MEDIUM, "The algorithm of the key manager.")
_define("ssl.trustmanager.algorithm", STRING, "PKIX", None, MEDIUM, "The algorithm of the trust manager.")
_define("ssl.secure.random.implementation", STRING, None, None, LOW, "The random number generator.")
_define("ssl.engine.factory.class", CLASS, None, None, LOW, "The class that creates TLS engines.")

# SASL.
_define("sasl.enabled.mechanisms", LIST, "GSSAPI", distinct(empty=True, null=False), MEDIUM,
    "The SASL mechanisms that the broker accepts.")
_define("sasl.mechanism.inter.broker.protocol", STRING, "GSSAPI", None, MEDIUM, "The SASL mechanism between brokers.")
_define("sasl.mechanism.controller.protocol", STRING, "GSSAPI", None, HIGH,
    "The SASL mechanism between brokers and controllers.")
_define("sasl.jaas.config", PASSWORD, None, None, MEDIUM, "The JAAS login configuration of a listener and mechanism.")
_define("sasl.server.callback.handler.class", CLASS, None, None, MEDIUM, "The class that verifies credentials.")
_define("sasl.server.max.receive.size", INT, 524_288, None, MEDIUM,
    "The maximum size of a message during SASL authentication.")
_define("sasl.client.callback.handler.class", CLASS, None, None, MEDIUM, "The class that supplies credentials.")
_define("sasl.login.callback.handler.class", CLASS, None, None, MEDIUM,
    "The class that supplies credentials for a login.")
_define("sasl.login.class", CLASS, None, None, MEDIUM, "The class that performs the login.")
_define("sasl.login.connect.timeout.ms", INT, None, None, LOW,
    "How long connecting to an identity provider may take.")
_define("sasl.login.read.timeout.ms", INT, None, None, LOW, "How long the response of an identity provider may take.")
_define("sasl.login.retry.backoff.ms", LONG, 100, None, LOW, "How long to wait before a failed login is retried.")
_define("sasl.login.retry.backoff.max.ms", LONG, 10_000, None, LOW,
    "The maximum that the login retry backoff grows to.")
_define("sasl.login.refresh.window.factor", DOUBLE, 0.8, None, MEDIUM,
    "The fraction of a credential's lifetime after which it is refreshed.")
_define("sasl.login.refresh.window.jitter", DOUBLE, 0.05, None, MEDIUM,
    "The maximum random jitter of the refresh time, as a fraction of the credential's lifetime.")
_define("sasl.login.refresh.min.period.seconds", SHORT, 60, None, MEDIUM,
    "The minimum time between two refreshes of a credential.")
_define("sasl.login.refresh.buffer.seconds", SHORT, 300, None, MEDIUM,
    "How long before it expires a credential is refreshed at the latest.")

# Kerberos.
_define("sasl.kerberos.service.name", STRING, None, None, MEDIUM, "The Kerberos service name.")
_define("sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit", None, MEDIUM, "The path of kinit.")
_define("sasl.kerberos.ticket.renew.window.factor", DOUBLE, 0.8, None, MEDIUM,
    "The fraction of a ticket's lifetime after which it is renewed.")
_define("sasl.kerberos.ticket.renew.jitter", DOUBLE, 0.05, None, MEDIUM,
    "The maximum random jitter of the renewal time, as a fraction of the ticket's lifetime.")
_define("sasl.kerberos.min.time.before.relogin", LONG, 60_000, None, MEDIUM, "The minimum time between two logins.")
_define("sasl.kerberos.principal.to.local.rules", LIST, "DEFAULT", distinct(empty=True, null=False), MEDIUM,
    "Rules that map a Kerberos principal to a short name.")

# OAuth.
_define("sasl.oauthbearer.token.endpoint.url", STRING, None, None, MEDIUM, "The URL that issues tokens.")
_define("sasl.oauthbearer.jwks.endpoint.url", STRING, None, None, MEDIUM,
    "The URL of the keys that verify tokens (JWKS).")
_define("sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, 3_600_000, None, LOW,
    "How often the JWKS are refreshed.")
_define("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", LONG, 100, None, LOW,
    "How long to wait before a failed refresh of the JWKS is retried.")
_define("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", LONG, 10_000, None, LOW,
    "The maximum that the JWKS retry backoff grows to.")
_define("sasl.oauthbearer.jwt.retriever.class", CLASS, None, None, MEDIUM, "The class that retrieves tokens.")
_define("sasl.oauthbearer.jwt.validator.class", CLASS, None, None, MEDIUM, "The class that validates tokens.")
_define("sasl.oauthbearer.expected.audience", LIST, "", distinct(empty=True, null=False), HIGH,
    "The audience that a token must have.")
_define("sasl.oauthbearer.expected.issuer", STRING, None, None, HIGH, "The issuer that a token must have.")
_define("sasl.oauthbearer.clock.skew.seconds", INT, 30, None, LOW,
    "The maximum difference between the clocks of the broker and the identity provider.")
_define("sasl.oauthbearer.scope", STRING, None, None, MEDIUM, "The scope to request.")
_define("sasl.oauthbearer.scope.claim.name", STRING, "scope", None, LOW,
    "The claim of a token that contains the scope.")
_define("sasl.oauthbearer.sub.claim.name", STRING, "sub", None, LOW, "The claim of a token that contains the subject.")
_define("sasl.oauthbearer.client.credentials.client.id", STRING, None, None, MEDIUM,
    "The client id of the client credentials flow.")
_define("sasl.oauthbearer.client.credentials.client.secret", PASSWORD, None, None, MEDIUM,
    "The client secret of the client credentials flow.")
_define("sasl.oauthbearer.assertion.algorithm", STRING, "RS256", one_of_in_any_case("ES256", "RS256"), MEDIUM,
    "The algorithm that signs assertions.")
_define("sasl.oauthbearer.assertion.claim.aud", STRING, None, None, MEDIUM, "The audience of an assertion.")
_define("sasl.oauthbearer.assertion.claim.exp.seconds", INT, 300, between(0, 86_400), LOW,
    "How long an assertion is valid.")
_define("sasl.oauthbearer.assertion.claim.iss", STRING, None, None, MEDIUM, "The issuer of an assertion.")
_define("sasl.oauthbearer.assertion.claim.jti.include", BOOLEAN, False, None, MEDIUM,
    "Whether an assertion has a unique ID (claim jti).")
_define("sasl.oauthbearer.assertion.claim.nbf.seconds", INT, 60, between(0, 3600), LOW,
    "How many seconds before its creation an assertion becomes valid (claim nbf).")
_define("sasl.oauthbearer.assertion.claim.sub", STRING, None, None, MEDIUM, "The subject of an assertion.")
_define("sasl.oauthbearer.assertion.file", STRING, None, None, MEDIUM, "A file that contains a complete assertion.")
_define("sasl.oauthbearer.assertion.private.key.file", STRING, None, None, MEDIUM,
    "The file of the private key that signs assertions.")
_define("sasl.oauthbearer.assertion.private.key.passphrase", PASSWORD, None, None, MEDIUM,
    "The passphrase of the private key that signs assertions.")
_define("sasl.oauthbearer.assertion.template.file", STRING, None, None, MEDIUM,
    "A file with additional claims of an assertion.")

# Delegation tokens.
_define("delegation.token.secret.key", PASSWORD, None, None, MEDIUM,
    "The secret key that signs delegation tokens. It must be the same on all nodes.")
_define("delegation.token.max.lifetime.ms", LONG, 604_800_000, at_least(1), MEDIUM,
    "The maximum lifetime of a delegation token. It cannot be renewed beyond it.")
_define("delegation.token.expiry.time.ms", LONG, 86_400_000, at_least(1), MEDIUM,
    "How long a delegation token is valid unless it is renewed.")
_define("delegation.token.expiry.check.interval.ms", LONG, 3_600_000, at_least(1), LOW,
    "How often the controller looks for expired delegation tokens.")

# fmt: on
