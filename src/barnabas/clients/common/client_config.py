"""Settings that all clients have, under Kafka's names and with Kafka's defaults.

A client takes its settings in two spellings, together if need be: a mapping with Kafka's dots, as in a properties
file, and keywords with underscores.

>>> client_properties({"linger.ms": 5, "acks": "all"}, {"client_id": "billing"})
{'linger.ms': 5, 'acks': 'all', 'client.id': 'billing'}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from barnabas.clients.common.security_aliases import NAMES, with_kafka_names
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
    """Returns both spellings as one mapping with Kafka's names, and the values of config providers' variables.

    A setting that is given in both is an error, and so is an underscore in the mapping. A keyword that is None counts
    as not given. Names of other clients are translated: see `barnabas.clients.common.security_aliases`.
    """
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
    if "config.providers" in properties:
        from barnabas.common.config_providers import resolve_variables  # few clients have any

        properties = resolve_variables(properties)
    return with_kafka_names(properties)


def split_positional(given: Iterable[object]) -> tuple[Mapping[str, object] | None, list[str]]:
    """Returns the settings and the topics in the positional arguments of a consumer.

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
            # A second mapping is not shown: it may have a password.
            shown = "a second mapping" if isinstance(argument, Mapping) else repr(argument)
            raise TypeError(
                f"Positional arguments are names of topics, or one mapping with settings, not {shown}: "
                'KafkaConsumer("orders", bootstrap_servers="localhost:9092")'
            )
    return config, topics


def refuse_unknown(keywords: Iterable[str], definition: ConfigDef) -> None:
    """Raises TypeError for keywords that are not settings, and suggests the closest one.

    Unknown names in a mapping are accepted, because they may be meant for a plug-in.
    """
    for keyword in keywords:
        name = keyword.replace("_", ".")
        if name not in definition.keys and name not in NAMES:
            from difflib import get_close_matches  # for mistakes only

            close = get_close_matches(name, [*definition.keys, *NAMES], 1)
            hint = f"; did you mean {close[0].replace('.', '_')}?" if close else ""
            raise TypeError(f"there is no setting {keyword}{hint}")


def define_common(
    definition: ConfigDef, *, receive_buffer_bytes: int = 32_768, connections_max_idle_ms: int = 540_000
) -> ConfigDef:
    """Defines the settings of connections, metadata and metrics. The keywords are defaults that differ by client."""
    at_least_0 = Range.at_least(0)
    distinct = ValidList.any_non_duplicate_values(empty_allowed=True, null_allowed=False)
    define = definition.define
    define(
        "bootstrap.servers",
        Type.LIST,
        validator=ValidList.any_non_duplicate_values(empty_allowed=False, null_allowed=False),
        importance=HIGH,
        documentation="The brokers to connect to first, as a comma-separated list of host:port.",
    )
    define(
        "bootstrap.resolve.timeout.ms",
        Type.LONG,
        0,
        at_least_0,
        HIGH,
        "How long the client retries to resolve the bootstrap host names.",
    )
    define(
        "client.dns.lookup",
        Type.STRING,
        "use_all_dns_ips",
        ValidString.of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
        MEDIUM,
        "How host names are resolved to addresses.",
    )
    define("client.id", Type.STRING, "", None, MEDIUM, "The name of this client in quotas, logs and metrics.")
    define("client.rack", Type.STRING, "", None, LOW, "The rack of this client.")
    define("metadata.max.age.ms", Type.LONG, 300_000, at_least_0, LOW, "The age at which metadata is refreshed.")
    define("metadata.cluster.check.enable", Type.BOOLEAN, True, None, LOW, "Send the expected cluster ID to brokers.")
    define(
        "metadata.recovery.strategy",
        Type.STRING,
        "rebootstrap",
        CaseInsensitiveValidString.of("REBOOTSTRAP", "NONE"),
        LOW,
        "What to do when no known broker is available.",
    )
    define(
        "metadata.recovery.rebootstrap.trigger.ms",
        Type.LONG,
        300_000,
        at_least_0,
        LOW,
        "The time without metadata after which the client starts again from bootstrap.servers.",
    )
    define(
        "send.buffer.bytes",
        Type.INT,
        131_072,
        Range.at_least(-1),
        MEDIUM,
        "The size of the socket's send buffer; -1 uses the operating system's default.",
    )
    define(
        "receive.buffer.bytes",
        Type.INT,
        receive_buffer_bytes,
        Range.at_least(-1),
        MEDIUM,
        "The size of the socket's receive buffer; -1 uses the operating system's default.",
    )
    define(
        "local.socket.enable",
        Type.BOOLEAN,
        True,
        None,
        LOW,
        "Switch from TCP to a Unix domain socket if the broker is on the same machine and offers one.",
    )
    define("reconnect.backoff.ms", Type.LONG, 50, at_least_0, LOW, "The initial backoff before the client reconnects.")
    define(
        "reconnect.backoff.max.ms",
        Type.LONG,
        1_000,
        at_least_0,
        LOW,
        "The maximum backoff before the client reconnects.",
    )
    define(
        "retry.backoff.ms", Type.LONG, 100, at_least_0, LOW, "The initial backoff before a failed request is retried."
    )
    define(
        "retry.backoff.max.ms",
        Type.LONG,
        1_000,
        at_least_0,
        LOW,
        "The maximum backoff before a failed request is retried.",
    )
    define("request.timeout.ms", Type.INT, 30_000, at_least_0, MEDIUM, "How long to wait for a response.")
    define(
        "connections.max.idle.ms",
        Type.LONG,
        connections_max_idle_ms,
        None,
        MEDIUM,
        "Connections that are idle for this long are closed.",
    )
    define(
        "socket.connection.setup.timeout.ms",
        Type.LONG,
        10_000,
        None,
        MEDIUM,
        "How long to wait for a connection to be established.",
    )
    define(
        "socket.connection.setup.timeout.max.ms",
        Type.LONG,
        30_000,
        None,
        MEDIUM,
        "The maximum that this timeout grows to after consecutive failures.",
    )
    define("metric.reporters", Type.LIST, (), distinct, LOW, "Classes that are notified of metrics.")
    define("metrics.num.samples", Type.INT, 2, Range.at_least(1), LOW, "The number of sample windows of a metric.")
    define("metrics.sample.window.ms", Type.LONG, 30_000, at_least_0, LOW, "The length of a sample window.")
    define(
        "metrics.recording.level",
        Type.STRING,
        "INFO",
        ValidString.of("INFO", "DEBUG", "TRACE"),
        LOW,
        "The recording level of metrics.",
    )
    define(
        "enable.metrics.push",
        Type.BOOLEAN,
        True,
        None,
        LOW,
        "Push metrics to brokers that subscribe to them (KIP-714).",
    )
    define(
        "config.providers",
        Type.LIST,
        (),
        distinct,
        LOW,
        "Names of the config providers that resolve variables in values.",
    )
    return definition


def define_security(definition: ConfigDef) -> ConfigDef:
    """Defines the settings of TLS and SASL."""
    distinct = ValidList.any_non_duplicate_values(empty_allowed=True, null_allowed=False)
    definition.define(
        "security.protocol",
        Type.STRING,
        "PLAINTEXT",
        CaseInsensitiveValidString.of("SASL_SSL", "PLAINTEXT", "SSL", "SASL_PLAINTEXT"),
        MEDIUM,
        "The security protocol of connections to brokers.",
    )
    for name, kind, default, validator, importance, documentation in (
        ("security.providers", Type.STRING, None, None, LOW, "Security providers (Java only)."),
        ("ssl.cipher.suites", Type.LIST, (), distinct, LOW, "Cipher suites to offer. Empty: the defaults."),
        ("ssl.enabled.protocols", Type.LIST, ("TLSv1.2", "TLSv1.3"), distinct, MEDIUM, "TLS versions to offer."),
        (
            "ssl.endpoint.identification.algorithm",
            Type.STRING,
            "https",
            None,
            LOW,
            "How to verify host names. Empty: not at all.",
        ),
        ("ssl.engine.factory.class", Type.CLASS, None, None, LOW, "The class that creates TLS contexts."),
        ("ssl.key.password", Type.PASSWORD, None, None, HIGH, "The password of the private key."),
        ("ssl.keymanager.algorithm", Type.STRING, "SunX509", None, LOW, "Java only."),
        ("ssl.keystore.certificate.chain", Type.PASSWORD, None, None, HIGH, "The client's certificate chain, in PEM."),
        ("ssl.keystore.key", Type.PASSWORD, None, None, HIGH, "The client's private key, in PEM."),
        ("ssl.keystore.location", Type.STRING, None, None, HIGH, "The key store file."),
        ("ssl.keystore.password", Type.PASSWORD, None, None, HIGH, "The password of the key store."),
        ("ssl.keystore.type", Type.STRING, "JKS", None, MEDIUM, "The format of the key store."),
        ("ssl.protocol", Type.STRING, "TLSv1.3", None, MEDIUM, "The preferred TLS version."),
        ("ssl.provider", Type.STRING, None, None, MEDIUM, "Java only."),
        ("ssl.secure.random.implementation", Type.STRING, None, None, LOW, "Java only."),
        ("ssl.trustmanager.algorithm", Type.STRING, "PKIX", None, LOW, "Java only."),
        ("ssl.truststore.certificates", Type.PASSWORD, None, None, HIGH, "Trusted certificates, in PEM."),
        ("ssl.truststore.location", Type.STRING, None, None, HIGH, "The trust store file."),
        ("ssl.truststore.password", Type.PASSWORD, None, None, HIGH, "The password of the trust store."),
        ("ssl.truststore.type", Type.STRING, "JKS", None, MEDIUM, "The format of the trust store."),
        (
            "sasl.client.callback.handler.class",
            Type.CLASS,
            None,
            None,
            MEDIUM,
            "Supplies credentials to the mechanism.",
        ),
        ("sasl.jaas.config", Type.PASSWORD, None, None, MEDIUM, "The client's credentials."),
        ("sasl.kerberos.kinit.cmd", Type.STRING, "/usr/bin/kinit", None, LOW, "The path of kinit."),
        ("sasl.kerberos.min.time.before.relogin", Type.LONG, 60_000, None, LOW, "Minimum time between logins."),
        ("sasl.kerberos.service.name", Type.STRING, None, None, MEDIUM, "The Kerberos service name."),
        ("sasl.kerberos.ticket.renew.jitter", Type.DOUBLE, 0.05, None, LOW, "Random jitter of the renewal time."),
        (
            "sasl.kerberos.ticket.renew.window.factor",
            Type.DOUBLE,
            0.8,
            None,
            LOW,
            "Share of lifetime until renewal.",
        ),
        ("sasl.login.callback.handler.class", Type.CLASS, None, None, MEDIUM, "Supplies credentials for a login."),
        ("sasl.login.class", Type.CLASS, None, None, MEDIUM, "The class that logs in."),
        ("sasl.login.connect.timeout.ms", Type.INT, None, None, LOW, "Connecting to the identity provider."),
        ("sasl.login.read.timeout.ms", Type.INT, None, None, LOW, "Responses of the identity provider."),
        ("sasl.login.refresh.buffer.seconds", Type.SHORT, 300, Range.between(0, 3600), LOW, "Time before expiry."),
        ("sasl.login.refresh.min.period.seconds", Type.SHORT, 60, Range.between(0, 900), LOW, "Minimum interval."),
        ("sasl.login.refresh.window.factor", Type.DOUBLE, 0.8, Range.between(0.5, 1.0), LOW, "Share of lifetime."),
        ("sasl.login.refresh.window.jitter", Type.DOUBLE, 0.05, Range.between(0.0, 0.25), LOW, "Random jitter."),
        ("sasl.login.retry.backoff.max.ms", Type.LONG, 10_000, None, LOW, "Maximum backoff between logins."),
        ("sasl.login.retry.backoff.ms", Type.LONG, 100, None, LOW, "Initial backoff between logins."),
        ("sasl.mechanism", Type.STRING, "GSSAPI", None, MEDIUM, "The SASL mechanism."),
        ("sasl.oauthbearer.allow.unverified.audience", Type.BOOLEAN, False, None, MEDIUM, "Skip the audience check."),
        ("sasl.oauthbearer.allow.unverified.issuer", Type.BOOLEAN, False, None, MEDIUM, "Skip the issuer check."),
        (
            "sasl.oauthbearer.assertion.algorithm",
            Type.STRING,
            "RS256",
            CaseInsensitiveValidString.of("ES256", "RS256"),
            MEDIUM,
            "The algorithm that signs assertions.",
        ),
        ("sasl.oauthbearer.assertion.claim.aud", Type.STRING, None, None, MEDIUM, "The audience of an assertion."),
        (
            "sasl.oauthbearer.assertion.claim.exp.seconds",
            Type.INT,
            300,
            Range.between(0, 86_400),
            LOW,
            "How long an assertion is valid.",
        ),
        ("sasl.oauthbearer.assertion.claim.iss", Type.STRING, None, None, MEDIUM, "The issuer of an assertion."),
        (
            "sasl.oauthbearer.assertion.claim.jti.include",
            Type.BOOLEAN,
            False,
            None,
            MEDIUM,
            "Add the claim jti.",
        ),
        (
            "sasl.oauthbearer.assertion.claim.nbf.seconds",
            Type.INT,
            60,
            Range.between(0, 3600),
            LOW,
            "How many seconds before its creation an assertion becomes valid.",
        ),
        ("sasl.oauthbearer.assertion.claim.sub", Type.STRING, None, None, MEDIUM, "The subject of an assertion."),
        ("sasl.oauthbearer.assertion.file", Type.STRING, None, None, MEDIUM, "A file with a complete assertion."),
        ("sasl.oauthbearer.assertion.private.key.file", Type.STRING, None, None, MEDIUM, "The key that signs."),
        (
            "sasl.oauthbearer.assertion.private.key.passphrase",
            Type.PASSWORD,
            None,
            None,
            MEDIUM,
            "Passphrase of the key.",
        ),
        ("sasl.oauthbearer.assertion.template.file", Type.STRING, None, None, MEDIUM, "Additional claims."),
        ("sasl.oauthbearer.client.credentials.client.id", Type.STRING, None, None, MEDIUM, "The OAuth client ID."),
        ("sasl.oauthbearer.client.credentials.client.secret", Type.PASSWORD, None, None, MEDIUM, "The OAuth secret."),
        ("sasl.oauthbearer.clock.skew.seconds", Type.INT, 30, None, LOW, "Maximum difference of clocks."),
        ("sasl.oauthbearer.expected.audience", Type.LIST, (), distinct, HIGH, "The required audience."),
        ("sasl.oauthbearer.expected.issuer", Type.STRING, None, None, HIGH, "The required issuer."),
        (
            "sasl.oauthbearer.header.urlencode",
            Type.BOOLEAN,
            False,
            None,
            LOW,
            "URL-encode the credentials.",
        ),
        ("sasl.oauthbearer.jwks.endpoint.refresh.ms", Type.LONG, 3_600_000, None, LOW, "How often to refresh keys."),
        ("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", Type.LONG, 10_000, None, LOW, "Maximum backoff."),
        ("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", Type.LONG, 100, None, LOW, "Initial backoff."),
        ("sasl.oauthbearer.jwks.endpoint.url", Type.STRING, None, None, MEDIUM, "The URL of the keys."),
        ("sasl.oauthbearer.jwt.retriever.class", Type.CLASS, None, None, MEDIUM, "Retrieves tokens."),
        ("sasl.oauthbearer.jwt.validator.class", Type.CLASS, None, None, MEDIUM, "Validates tokens."),
        ("sasl.oauthbearer.scope", Type.STRING, None, None, MEDIUM, "The scope to request."),
        ("sasl.oauthbearer.scope.claim.name", Type.STRING, "scope", None, LOW, "The claim with the scope."),
        ("sasl.oauthbearer.sub.claim.name", Type.STRING, "sub", None, LOW, "The claim with the subject."),
        ("sasl.oauthbearer.token.endpoint.url", Type.STRING, None, None, MEDIUM, "The URL that issues tokens."),
    ):
        definition.define(name, kind, default, validator, importance, documentation)
    return definition
