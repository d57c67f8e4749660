"""Settings that all clients have, under Kafka's names and with Kafka's defaults.

A client takes its settings in two spellings, together if need be: a mapping with Kafka's dots, as in a properties
file, and keywords with underscores.

>>> client_properties({"linger.ms": 5, "acks": "all"}, {"client_id": "billing"})
{'linger.ms': 5, 'acks': 'all', 'client.id': 'billing'}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from barnabas.common.config_def import (
    CaseInsensitiveValidString,
    ConfigDef,
    ConfigError,
    Importance,
    Range,
    Type,
    ValidList,
    ValidString,
)

LOW: Final = Importance.LOW
MEDIUM: Final = Importance.MEDIUM
HIGH: Final = Importance.HIGH

RETRY_BACKOFF_EXP_BASE: Final = 2
RETRY_BACKOFF_JITTER: Final = 0.2


def client_properties(config: Mapping[str, object] | None, keywords: Mapping[str, object]) -> dict[str, object]:
    """Both spellings as one mapping with dots. A setting that is given in both is a mistake, and so is an underscore
    in the mapping. A keyword that is None counts as not given."""
    properties: dict[str, object] = {}
    for name, value in (config or {}).items():
        if "_" in name and "." not in name:
            raise ConfigError(f"There is no setting {name}; did you mean {name.replace('_', '.')}?", name=name)
        properties[name] = value
    for keyword, value in keywords.items():
        name = keyword.replace("_", ".")
        if value is None:
            continue
        if name in properties:
            raise ConfigError(f"{name} is given twice: as {name!r} and as {keyword}=.", name=name)
        properties[name] = value
    return properties


def split_positional(given: Iterable[object]) -> tuple[Mapping[str, object] | None, list[str]]:
    """The settings and the topics among the positional arguments of a consumer.

    >>> split_positional(("orders", "returns")), split_positional(({"group.id": "billing"},))
    ((None, ['orders', 'returns']), ({'group.id': 'billing'}, []))
    """
    config: Mapping[str, object] | None = None
    topics: list[str] = []
    for argument in given:
        if isinstance(argument, str):
            topics.append(argument)
        elif isinstance(argument, Mapping) and config is None:
            config = argument
        elif argument is not None:
            raise TypeError(
                f"Positional arguments are names of topics, or one mapping with settings, not {argument!r}: "
                'KafkaConsumer("orders", bootstrap_servers="localhost:9092")'
            )
    return config, topics


def refuse_unknown(keywords: Iterable[str], definition: ConfigDef) -> None:
    """A keyword is written by somebody who programs, and a wrong one is a slip of the pen; names in a mapping may be
    meant for a serializer or another plug-in, and are let through."""
    for keyword in keywords:
        if keyword.replace("_", ".") not in definition.keys:
            raise TypeError(f"there is no setting {keyword}")


def define_common(definition: ConfigDef) -> ConfigDef:
    """The settings of connections, metadata and metrics."""
    at_least_0 = Range.at_least(0)
    distinct = ValidList.any_non_duplicate_values(empty_allowed=True, null_allowed=False)
    define = definition.define
    define(
        "bootstrap.servers",
        Type.LIST,
        validator=ValidList.any_non_duplicate_values(empty_allowed=False, null_allowed=False),
        importance=HIGH,
        documentation="Where to ask for the rest of the cluster: host:port, several with commas between them.",
    )
    define(
        "bootstrap.resolve.timeout.ms", Type.LONG, 0, at_least_0, HIGH, "How long the bootstrap names may be unknown."
    )
    define(
        "client.dns.lookup",
        Type.STRING,
        "use_all_dns_ips",
        ValidString.of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
        MEDIUM,
        "How host names become addresses.",
    )
    define("client.id", Type.STRING, "", None, MEDIUM, "The name of this client in quotas, logs and metrics.")
    define("client.rack", Type.STRING, "", None, LOW, "Where this client is.")
    define("metadata.max.age.ms", Type.LONG, 300_000, at_least_0, LOW, "Metadata is asked for again after this.")
    define("metadata.cluster.check.enable", Type.BOOLEAN, True, None, LOW, "Tell brokers which cluster is expected.")
    define(
        "metadata.recovery.strategy",
        Type.STRING,
        "rebootstrap",
        CaseInsensitiveValidString.of("REBOOTSTRAP", "NONE"),
        LOW,
        "What to do when no known broker can be reached.",
    )
    define(
        "metadata.recovery.rebootstrap.trigger.ms",
        Type.LONG,
        300_000,
        at_least_0,
        LOW,
        "After so long without metadata, start again from the bootstrap servers.",
    )
    define("send.buffer.bytes", Type.INT, 131_072, Range.at_least(-1), MEDIUM, "Of the socket; -1: the system's.")
    define("receive.buffer.bytes", Type.INT, 32_768, Range.at_least(-1), MEDIUM, "Of the socket; -1: the system's.")
    define(
        "local.socket.enable",
        Type.BOOLEAN,
        True,
        None,
        LOW,
        "Leave TCP for a Unix domain socket where the broker is on the same machine and offers one.",
    )
    define("reconnect.backoff.ms", Type.LONG, 50, at_least_0, LOW, "The first pause before connecting again.")
    define("reconnect.backoff.max.ms", Type.LONG, 1_000, at_least_0, LOW, "The longest such pause.")
    define("retry.backoff.ms", Type.LONG, 100, at_least_0, LOW, "The first pause before a failed request is repeated.")
    define("retry.backoff.max.ms", Type.LONG, 1_000, at_least_0, LOW, "The longest such pause.")
    define("request.timeout.ms", Type.INT, 30_000, at_least_0, MEDIUM, "How long an answer may take.")
    define("connections.max.idle.ms", Type.LONG, 540_000, None, MEDIUM, "Connections idle for longer are closed.")
    define("socket.connection.setup.timeout.ms", Type.LONG, 10_000, None, MEDIUM, "How long connecting may take.")
    define("socket.connection.setup.timeout.max.ms", Type.LONG, 30_000, None, MEDIUM, "... after several failures.")
    define("metric.reporters", Type.LIST, (), distinct, LOW, "Classes that are told about metrics.")
    define("metrics.num.samples", Type.INT, 2, Range.at_least(1), LOW, "How many windows a metric remembers.")
    define("metrics.sample.window.ms", Type.LONG, 30_000, at_least_0, LOW, "How long such a window is.")
    define(
        "metrics.recording.level",
        Type.STRING,
        "INFO",
        ValidString.of("INFO", "DEBUG", "TRACE"),
        LOW,
        "How detailed metrics are.",
    )
    define("enable.metrics.push", Type.BOOLEAN, True, None, LOW, "Send metrics to brokers that ask (KIP-714).")
    define("config.providers", Type.LIST, (), distinct, LOW, "Where to look up values that stand for others.")
    return definition


def define_security(definition: ConfigDef) -> ConfigDef:
    """The settings of TLS and SASL."""
    distinct = ValidList.any_non_duplicate_values(empty_allowed=True, null_allowed=False)
    definition.define(
        "security.protocol",
        Type.STRING,
        "PLAINTEXT",
        CaseInsensitiveValidString.of("SASL_SSL", "PLAINTEXT", "SSL", "SASL_PLAINTEXT"),
        MEDIUM,
        "How to talk to brokers.",
    )
    for name, kind, default, validator, importance, documentation in (
        ("security.providers", Type.STRING, None, None, LOW, "Of algorithms; a Java notion."),
        ("ssl.cipher.suites", Type.LIST, (), distinct, LOW, "Which to offer; empty: the usual ones."),
        ("ssl.enabled.protocols", Type.LIST, ("TLSv1.2", "TLSv1.3"), distinct, MEDIUM, "Which to accept."),
        ("ssl.endpoint.identification.algorithm", Type.STRING, "https", None, LOW, "Empty: no check of host names."),
        ("ssl.engine.factory.class", Type.CLASS, None, None, LOW, "Makes TLS contexts."),
        ("ssl.key.password", Type.PASSWORD, None, None, HIGH, "Of the private key."),
        ("ssl.keymanager.algorithm", Type.STRING, "SunX509", None, LOW, "A Java notion."),
        ("ssl.keystore.certificate.chain", Type.PASSWORD, None, None, HIGH, "This client's certificates, as PEM."),
        ("ssl.keystore.key", Type.PASSWORD, None, None, HIGH, "This client's private key, as PEM."),
        ("ssl.keystore.location", Type.STRING, None, None, HIGH, "A file with both."),
        ("ssl.keystore.password", Type.PASSWORD, None, None, HIGH, "Of that file."),
        ("ssl.keystore.type", Type.STRING, "JKS", None, MEDIUM, "The format of that file."),
        ("ssl.protocol", Type.STRING, "TLSv1.3", None, MEDIUM, "The version to prefer."),
        ("ssl.provider", Type.STRING, None, None, MEDIUM, "A Java notion."),
        ("ssl.secure.random.implementation", Type.STRING, None, None, LOW, "A Java notion."),
        ("ssl.trustmanager.algorithm", Type.STRING, "PKIX", None, LOW, "A Java notion."),
        ("ssl.truststore.certificates", Type.PASSWORD, None, None, HIGH, "Whom to trust, as PEM."),
        ("ssl.truststore.location", Type.STRING, None, None, HIGH, "A file with them."),
        ("ssl.truststore.password", Type.PASSWORD, None, None, HIGH, "Of that file."),
        ("ssl.truststore.type", Type.STRING, "JKS", None, MEDIUM, "The format of that file."),
        ("sasl.client.callback.handler.class", Type.CLASS, None, None, MEDIUM, "Answers the mechanism's questions."),
        ("sasl.jaas.config", Type.PASSWORD, None, None, MEDIUM, "Who this client is, and its secret."),
        ("sasl.kerberos.kinit.cmd", Type.STRING, "/usr/bin/kinit", None, LOW, "Kerberos."),
        ("sasl.kerberos.min.time.before.relogin", Type.LONG, 60_000, None, LOW, "Kerberos."),
        ("sasl.kerberos.service.name", Type.STRING, None, None, MEDIUM, "Kerberos."),
        ("sasl.kerberos.ticket.renew.jitter", Type.DOUBLE, 0.05, None, LOW, "Kerberos."),
        ("sasl.kerberos.ticket.renew.window.factor", Type.DOUBLE, 0.8, None, LOW, "Kerberos."),
        ("sasl.login.callback.handler.class", Type.CLASS, None, None, MEDIUM, "Gets the secret."),
        ("sasl.login.class", Type.CLASS, None, None, MEDIUM, "Logs in."),
        ("sasl.login.connect.timeout.ms", Type.INT, None, None, LOW, "To the identity provider."),
        ("sasl.login.read.timeout.ms", Type.INT, None, None, LOW, "From the identity provider."),
        ("sasl.login.refresh.buffer.seconds", Type.SHORT, 300, Range.between(0, 3600), LOW, "Renewal of tokens."),
        ("sasl.login.refresh.min.period.seconds", Type.SHORT, 60, Range.between(0, 900), LOW, "Renewal of tokens."),
        ("sasl.login.refresh.window.factor", Type.DOUBLE, 0.8, Range.between(0.5, 1.0), LOW, "Renewal of tokens."),
        ("sasl.login.refresh.window.jitter", Type.DOUBLE, 0.05, Range.between(0.0, 0.25), LOW, "Renewal of tokens."),
        ("sasl.login.retry.backoff.max.ms", Type.LONG, 10_000, None, LOW, "Between attempts to log in."),
        ("sasl.login.retry.backoff.ms", Type.LONG, 100, None, LOW, "Between attempts to log in."),
        ("sasl.mechanism", Type.STRING, "GSSAPI", None, MEDIUM, "How to prove who this is."),
        ("sasl.oauthbearer.allow.unverified.audience", Type.BOOLEAN, False, None, MEDIUM, "Of tokens."),
        ("sasl.oauthbearer.allow.unverified.issuer", Type.BOOLEAN, False, None, MEDIUM, "Of tokens."),
        (
            "sasl.oauthbearer.assertion.algorithm",
            Type.STRING,
            "RS256",
            CaseInsensitiveValidString.of("ES256", "RS256"),
            MEDIUM,
            "Of the assertion.",
        ),
        ("sasl.oauthbearer.assertion.claim.aud", Type.STRING, None, None, MEDIUM, "Of the assertion."),
        (
            "sasl.oauthbearer.assertion.claim.exp.seconds",
            Type.INT,
            300,
            Range.between(0, 86_400),
            LOW,
            "Of the assertion.",
        ),
        ("sasl.oauthbearer.assertion.claim.iss", Type.STRING, None, None, MEDIUM, "Of the assertion."),
        ("sasl.oauthbearer.assertion.claim.jti.include", Type.BOOLEAN, False, None, MEDIUM, "Of the assertion."),
        (
            "sasl.oauthbearer.assertion.claim.nbf.seconds",
            Type.INT,
            60,
            Range.between(0, 3600),
            LOW,
            "Of the assertion.",
        ),
        ("sasl.oauthbearer.assertion.claim.sub", Type.STRING, None, None, MEDIUM, "Of the assertion."),
        ("sasl.oauthbearer.assertion.file", Type.STRING, None, None, MEDIUM, "An assertion that is made already."),
        ("sasl.oauthbearer.assertion.private.key.file", Type.STRING, None, None, MEDIUM, "Signs the assertion."),
        ("sasl.oauthbearer.assertion.private.key.passphrase", Type.PASSWORD, None, None, MEDIUM, "Of that key."),
        ("sasl.oauthbearer.assertion.template.file", Type.STRING, None, None, MEDIUM, "More claims."),
        ("sasl.oauthbearer.client.credentials.client.id", Type.STRING, None, None, MEDIUM, "For the provider."),
        ("sasl.oauthbearer.client.credentials.client.secret", Type.PASSWORD, None, None, MEDIUM, "For the provider."),
        ("sasl.oauthbearer.clock.skew.seconds", Type.INT, 30, None, LOW, "How far clocks may differ."),
        ("sasl.oauthbearer.expected.audience", Type.LIST, (), distinct, HIGH, "Of tokens."),
        ("sasl.oauthbearer.expected.issuer", Type.STRING, None, None, HIGH, "Of tokens."),
        ("sasl.oauthbearer.header.urlencode", Type.BOOLEAN, False, None, LOW, "For some providers."),
        ("sasl.oauthbearer.jwks.endpoint.refresh.ms", Type.LONG, 3_600_000, None, LOW, "Keys of the provider."),
        ("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", Type.LONG, 10_000, None, LOW, "Keys of the provider."),
        ("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", Type.LONG, 100, None, LOW, "Keys of the provider."),
        ("sasl.oauthbearer.jwks.endpoint.url", Type.STRING, None, None, MEDIUM, "Keys of the provider."),
        ("sasl.oauthbearer.jwt.retriever.class", Type.CLASS, None, None, MEDIUM, "Gets tokens."),
        ("sasl.oauthbearer.jwt.validator.class", Type.CLASS, None, None, MEDIUM, "Checks tokens."),
        ("sasl.oauthbearer.scope", Type.STRING, None, None, MEDIUM, "Of tokens."),
        ("sasl.oauthbearer.scope.claim.name", Type.STRING, "scope", None, LOW, "Of tokens."),
        ("sasl.oauthbearer.sub.claim.name", Type.STRING, "sub", None, LOW, "Of tokens."),
        ("sasl.oauthbearer.token.endpoint.url", Type.STRING, None, None, MEDIUM, "Where tokens come from."),
    ):
        definition.define(name, kind, default, validator, importance, documentation)
    return definition
