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

# Who a client is.
_define("principal.builder.class", CLASS, None, None, MEDIUM,
    "A class that makes the principal of a connection from what its authentication found.")
_define("connections.max.reauth.ms", LONG, 0, None, MEDIUM,
    "After how long a client that has authenticated with SASL has to do it again; 0 for never.")
_define("security.providers", STRING, None, None, LOW, "Classes that provide security algorithms.")

# TLS.
_define("ssl.protocol", STRING, "TLSv1.3", None, MEDIUM, "The version of TLS.")
_define("ssl.provider", STRING, None, None, MEDIUM, "The provider of TLS.")
_define("ssl.cipher.suites", LIST, "", distinct(empty=True, null=False), MEDIUM,
    "The cipher suites that can be agreed on; empty for all.")
_define("ssl.enabled.protocols", LIST, "TLSv1.2,TLSv1.3", distinct(empty=True, null=False), MEDIUM,
    "The versions of TLS that can be agreed on.")
_define("ssl.client.auth", STRING, "none", one_of("required", "requested", "none"), MEDIUM,
    "Whether clients need a certificate: required, requested or none.")
_define("ssl.endpoint.identification.algorithm", STRING, "https", None, LOW,
    "How the host name of a certificate is checked; empty for not at all.")
_define("ssl.principal.mapping.rules", STRING, "DEFAULT", None, LOW,
    "How the name in a certificate becomes a principal.")
_define("ssl.allow.dn.changes", BOOLEAN, False, None, LOW,
    "Whether a new key store may have another distinguished name.")
_define("ssl.allow.san.changes", BOOLEAN, False, None, LOW,
    "Whether a new key store may have other alternative names.")
_define("ssl.keystore.type", STRING, "JKS", None, MEDIUM, "The format of the key store.")
_define("ssl.keystore.location", STRING, None, None, MEDIUM, "The file of the key store.")
_define("ssl.keystore.password", PASSWORD, None, None, MEDIUM, "The password of the key store.")
_define("ssl.key.password", PASSWORD, None, None, MEDIUM, "The password of the private key.")
_define("ssl.keystore.key", PASSWORD, None, None, MEDIUM, "The private key itself, in PEM form.")
_define("ssl.keystore.certificate.chain", PASSWORD, None, None, MEDIUM,
    "The certificates that go with it, in PEM form.")
_define("ssl.truststore.type", STRING, "JKS", None, MEDIUM, "The format of the trust store.")
_define("ssl.truststore.location", STRING, None, None, MEDIUM, "The file of the trust store.")
_define("ssl.truststore.password", PASSWORD, None, None, MEDIUM, "The password of the trust store.")
_define("ssl.truststore.certificates", PASSWORD, None, None, MEDIUM,
    "The trusted certificates themselves, in PEM form.")
_define("ssl.keymanager.algorithm", STRING, "SunX509", None, MEDIUM, "The algorithm of the key manager.")
_define("ssl.trustmanager.algorithm", STRING, "PKIX", None, MEDIUM, "The algorithm of the trust manager.")
_define("ssl.secure.random.implementation", STRING, None, None, LOW, "Where random numbers come from.")
_define("ssl.engine.factory.class", CLASS, None, None, LOW, "A class that makes the TLS engine.")

# SASL.
_define("sasl.enabled.mechanisms", LIST, "GSSAPI", distinct(empty=True, null=False), MEDIUM,
    "The SASL mechanisms that clients can use.")
_define("sasl.mechanism.inter.broker.protocol", STRING, "GSSAPI", None, MEDIUM, "The mechanism between brokers.")
_define("sasl.mechanism.controller.protocol", STRING, "GSSAPI", None, HIGH,
    "The mechanism between brokers and controllers.")
_define("sasl.jaas.config", PASSWORD, None, None, MEDIUM, "The login configuration of a listener and mechanism.")
_define("sasl.server.callback.handler.class", CLASS, None, None, MEDIUM, "The class that checks credentials.")
_define("sasl.server.max.receive.size", INT, 524_288, None, MEDIUM, "The largest message during authentication.")
_define("sasl.client.callback.handler.class", CLASS, None, None, MEDIUM, "The class that supplies credentials.")
_define("sasl.login.callback.handler.class", CLASS, None, None, MEDIUM,
    "The class that supplies credentials for a login.")
_define("sasl.login.class", CLASS, None, None, MEDIUM, "The class that does the login.")
_define("sasl.login.connect.timeout.ms", INT, None, None, LOW,
    "How long connecting to an identity provider may take.")
_define("sasl.login.read.timeout.ms", INT, None, None, LOW, "How long the answer of an identity provider may take.")
_define("sasl.login.retry.backoff.ms", LONG, 100, None, LOW, "How long to wait before a login is tried again.")
_define("sasl.login.retry.backoff.max.ms", LONG, 10_000, None, LOW, "What that time grows to.")
_define("sasl.login.refresh.window.factor", DOUBLE, 0.8, None, MEDIUM,
    "At which share of its life a credential is renewed.")
_define("sasl.login.refresh.window.jitter", DOUBLE, 0.05, None, MEDIUM,
    "The most by which that moment is moved at random.")
_define("sasl.login.refresh.min.period.seconds", SHORT, 60, None, MEDIUM, "The least time between two renewals.")
_define("sasl.login.refresh.buffer.seconds", SHORT, 300, None, MEDIUM,
    "How long before the end of a credential's life it is renewed at the latest.")

# Kerberos.
_define("sasl.kerberos.service.name", STRING, None, None, MEDIUM, "The name of the service in Kerberos.")
_define("sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit", None, MEDIUM, "The path of kinit.")
_define("sasl.kerberos.ticket.renew.window.factor", DOUBLE, 0.8, None, MEDIUM,
    "At which share of its life a ticket is renewed.")
_define("sasl.kerberos.ticket.renew.jitter", DOUBLE, 0.05, None, MEDIUM,
    "The most by which that moment is moved at random.")
_define("sasl.kerberos.min.time.before.relogin", LONG, 60_000, None, MEDIUM, "The least time between two logins.")
_define("sasl.kerberos.principal.to.local.rules", LIST, "DEFAULT", distinct(empty=True, null=False), MEDIUM,
    "How a Kerberos principal becomes a short name.")

# OAuth.
_define("sasl.oauthbearer.token.endpoint.url", STRING, None, None, MEDIUM, "Where tokens are requested.")
_define("sasl.oauthbearer.jwks.endpoint.url", STRING, None, None, MEDIUM,
    "Where the keys are that tokens are checked with.")
_define("sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, 3_600_000, None, LOW,
    "How often those keys are read again.")
_define("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", LONG, 100, None, LOW,
    "How long to wait before that is tried again.")
_define("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", LONG, 10_000, None, LOW, "What that time grows to.")
_define("sasl.oauthbearer.jwt.retriever.class", CLASS, None, None, MEDIUM, "The class that gets tokens.")
_define("sasl.oauthbearer.jwt.validator.class", CLASS, None, None, MEDIUM, "The class that checks tokens.")
_define("sasl.oauthbearer.expected.audience", LIST, "", distinct(empty=True, null=False), HIGH,
    "For whom a token must be made.")
_define("sasl.oauthbearer.expected.issuer", STRING, None, None, HIGH, "By whom a token must be made.")
_define("sasl.oauthbearer.clock.skew.seconds", INT, 30, None, LOW, "By how much clocks may differ.")
_define("sasl.oauthbearer.scope", STRING, None, None, MEDIUM, "The scope that is asked for.")
_define("sasl.oauthbearer.scope.claim.name", STRING, "scope", None, LOW, "Which claim of a token has the scope.")
_define("sasl.oauthbearer.sub.claim.name", STRING, "sub", None, LOW, "Which claim of a token has the subject.")
_define("sasl.oauthbearer.client.credentials.client.id", STRING, None, None, MEDIUM,
    "The client id of the client credentials flow.")
_define("sasl.oauthbearer.client.credentials.client.secret", PASSWORD, None, None, MEDIUM,
    "The client secret of the client credentials flow.")
_define("sasl.oauthbearer.assertion.algorithm", STRING, "RS256", one_of_in_any_case("ES256", "RS256"), MEDIUM,
    "The algorithm that assertions are signed with.")
_define("sasl.oauthbearer.assertion.claim.aud", STRING, None, None, MEDIUM, "The audience of an assertion.")
_define("sasl.oauthbearer.assertion.claim.exp.seconds", INT, 300, between(0, 86_400), LOW,
    "How long an assertion is valid.")
_define("sasl.oauthbearer.assertion.claim.iss", STRING, None, None, MEDIUM, "The issuer of an assertion.")
_define("sasl.oauthbearer.assertion.claim.jti.include", BOOLEAN, False, None, MEDIUM,
    "Whether an assertion has an id.")
_define("sasl.oauthbearer.assertion.claim.nbf.seconds", INT, 60, between(0, 3600), LOW,
    "How far back the beginning of an assertion's validity lies.")
_define("sasl.oauthbearer.assertion.claim.sub", STRING, None, None, MEDIUM, "The subject of an assertion.")
_define("sasl.oauthbearer.assertion.file", STRING, None, None, MEDIUM, "A file with an assertion that is ready.")
_define("sasl.oauthbearer.assertion.private.key.file", STRING, None, None, MEDIUM,
    "The file of the key that assertions are signed with.")
_define("sasl.oauthbearer.assertion.private.key.passphrase", PASSWORD, None, None, MEDIUM,
    "The passphrase of that key.")
_define("sasl.oauthbearer.assertion.template.file", STRING, None, None, MEDIUM,
    "A file with further claims of an assertion.")

# Delegation tokens.
_define("delegation.token.secret.key", PASSWORD, None, None, MEDIUM,
    "The secret that delegation tokens are made with, the same on all nodes.")
_define("delegation.token.max.lifetime.ms", LONG, 604_800_000, at_least(1), MEDIUM,
    "How long a token can be renewed.")
_define("delegation.token.expiry.time.ms", LONG, 86_400_000, at_least(1), MEDIUM,
    "How long a token is valid without being renewed.")
_define("delegation.token.expiry.check.interval.ms", LONG, 3_600_000, at_least(1), LOW,
    "How often to look for tokens that have expired.")

# fmt: on
