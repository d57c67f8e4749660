"""The steps of ``barnabas doctor``, in the order in which a client takes them.

============  =====================================================  ================================================
step          what a client does                                     common mistakes
============  =====================================================  ================================================
address       parses host:port                                       a missing port, a URL
dns           resolves the host name                                 a name of a private network, a container's name
tcp           connects                                               no listener, a firewall
tls           verifies the broker's certificate                      an unknown authority, a wrong host name or clock
protocol      requests the versions of the APIs                      TLS expected, a web server, the controller's port
sasl          authenticates                                          a mechanism that is not enabled, a wrong password
metadata      requests the brokers of the cluster                    a cluster that is not ready
advertised    connects to each broker at its *advertised* address    ``advertised.listeners`` has an address that only
                                                                     works on the broker's own machine
controller    needs one for every change of the cluster              no quorum
topics        reads and writes groups and transactions               too few brokers for the internal topics
access        needs permissions                                      missing ACLs
============  =====================================================  ================================================

The step "advertised" fails most often: the bootstrap address works, and everything after that fails.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.cli.doctor_probe import HandshakeError, ProbeError, ask_api_versions
from barnabas.cli.finding import Finding
from barnabas.clients.common.bootstrap import parse_address
from barnabas.common.clock import SYSTEM_CLOCK
from barnabas.common.config_def import ConfigError
from barnabas.common.errors import ApiError, AuthenticationError, AuthorizationError, Errors
from barnabas.common.topic_names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC

if TYPE_CHECKING:
    from barnabas.clients.admin import KafkaAdminClient
    from barnabas.clients.common.client_sasl import ClientMechanism
    from barnabas.protocol.messages.api_versions import ApiVersionsResponse

_LOOPBACK: Final = ("127.", "::1", "localhost")
_METADATA_API: Final = 3


def examine_installation() -> Iterator[Finding]:
    """Checks the installation: compiled or pure code, and Java for Spark."""
    from importlib.util import find_spec

    from barnabas import __version__
    from barnabas.cli.banner import running_code

    code = running_code()
    remedy = "" if code.startswith("compiled") else "install with a C compiler and without BARNABAS_PURE to run faster"
    yield Finding("barnabas", "ok" if not remedy else "warning", f"{__version__}, {code}", remedy)
    if find_spec("pyspark") is None:
        yield Finding("java", "skipped", "not needed: Spark is not installed (pip install 'barnabas[spark]')")
        return
    from barnabas.spark.java_runtime import JavaMissingError, require_java

    try:
        java = require_java()
    except JavaMissingError as error:
        # A warning, not an error: clients do not need Java.
        yield Finding("java", "warning", str(error))
    else:
        yield Finding("java", "ok", f"{java}, for Spark")


class Security(NamedTuple):
    """The security settings of the examined client."""

    protocol: str = "PLAINTEXT"
    context: ssl.SSLContext | None = None
    """For SSL and SASL_SSL."""
    mechanism: ClientMechanism | None = None
    """For SASL_PLAINTEXT and SASL_SSL."""

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> Security:
        """Takes all settings of a client; raises `ConfigError`."""
        from barnabas.clients.common.client_sasl import client_mechanism
        from barnabas.clients.common.client_security import ClientSecurity, client_ssl_context

        values = ClientSecurity(properties).values()
        protocol = values.get_str("security.protocol").upper()
        return cls(
            protocol,
            client_ssl_context(values) if protocol.endswith("SSL") else None,
            client_mechanism(values) if protocol.startswith("SASL") else None,
        )

    def close(self) -> None:
        if self.mechanism is not None:
            self.mechanism.close()


def examine(
    servers: Sequence[str], timeout_s: float, settings: Mapping[str, Any] = MappingProxyType({})
) -> Iterator[Finding]:
    """Runs all steps until one fails. ``settings`` are those of the client that is examined."""
    try:
        security = Security.of(settings)
    except ConfigError as error:
        yield Finding("settings", "error", str(error), "see --command-config and -X")
        return
    except AuthenticationError as error:
        yield Finding("token", "error", str(error), "check where the client gets its tokens: sasl.oauthbearer.*")
        return
    try:
        yield from _examine_all(servers, timeout_s, settings, security)
    finally:
        security.close()


def _examine_all(
    servers: Sequence[str], timeout_s: float, settings: Mapping[str, Any], security: Security
) -> Iterator[Finding]:
    usable: list[str] = []
    for server in servers:
        findings = list(_examine_server(server, timeout_s, security))
        yield from findings
        if not any(finding.status == "error" for finding in findings):
            usable.append(server)
    if usable:
        yield from _examine_cluster(usable, timeout_s, settings)


def _examine_server(server: str, timeout_s: float, security: Security) -> Iterator[Finding]:
    try:
        host, port = parse_address(server)
    except ConfigError as error:
        yield Finding("address", "error", str(error), "write it as host:port, for example 127.0.0.1:9092")
        return
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        yield Finding(
            f"dns {host}",
            "error",
            f"the host name cannot be resolved: {getattr(error, 'strerror', None) or error}",
            "check the spelling, the search domain and /etc/hosts; only other containers can resolve a container name",
        )
        return
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    yield Finding(f"dns {host}", "ok", ", ".join(addresses))
    finding = check_tcp(host, port, timeout_s)
    yield finding
    if finding.status == "error":
        return
    from barnabas.cli.doctor_security import check_no_sasl, check_sasl, check_tls

    if security.context is not None:
        finding = check_tls(host, port, timeout_s, security.context)
        yield finding
        if finding.status == "error":
            return
    finding = check_protocol(host, port, timeout_s, security.context)
    yield finding
    if finding.status == "error":
        return
    if security.mechanism is not None:
        yield check_sasl(host, port, timeout_s, security.context, security.mechanism)
    elif (problem := check_no_sasl(host, port, timeout_s, security.context)) is not None:
        yield problem


def check_tcp(host: str, port: int, timeout_s: float, step: str | None = None) -> Finding:
    """Checks that the port accepts connections."""
    name = step or f"tcp {host}:{port}"
    begin = SYSTEM_CLOCK.nanoseconds()
    try:
        with socket.create_connection((host, port), timeout_s):
            took_ms = (SYSTEM_CLOCK.nanoseconds() - begin) / 1e6
    except ConnectionRefusedError:
        return Finding(
            name,
            "error",
            f"{host}:{port} refuses connections: nothing listens there",
            "check that the broker runs and uses this port; a listener on 127.0.0.1 accepts only local clients",
        )
    except TimeoutError:
        return Finding(
            name,
            "error",
            f"{host}:{port} does not respond within {timeout_s:g} s",
            "check whether a firewall or security group drops the packets, or the host is down",
        )
    except (OSError, UnicodeError) as error:
        return Finding(name, "error", f"{host}:{port} is unreachable: {error}", "check the network to that host")
    return Finding(name, "ok", f"connected in {took_ms:.1f} ms")


def check_protocol(host: str, port: int, timeout_s: float, context: ssl.SSLContext | None = None) -> Finding:
    """Checks that the listener speaks the Kafka protocol, in plaintext or over TLS."""
    step = f"protocol {host}:{port}"
    try:
        response = ask_api_versions(host, port, timeout_s, context)
    except HandshakeError as error:
        if context is None and _speaks_tls(host, port, timeout_s):
            return Finding(
                step,
                "error",
                "the listener uses TLS",
                "set security.protocol=SSL or SASL_SSL, with --command-config or -X",
            )
        return Finding(step, "error", str(error), error.remedy)
    except ssl.SSLError as error:  # with TLS 1.3 a missing client certificate is reported only now
        from barnabas.cli.doctor_security import tls_failure

        return tls_failure(step, error)
    except ProbeError as error:
        return Finding(step, "error", str(error), "check the broker's log")
    if response.error_code:
        error_name = Errors.for_code(response.error_code)
        return Finding(step, "error", f"refused: {error_name.message} ({error_name.name})", "check the broker's log")
    if not any(row.api_key == _METADATA_API for row in response.api_keys):
        return Finding(
            step,
            "error",
            "this is a controller's listener, not a broker's",
            "use the port of a broker (a listener that is not in controller.listener.names)",
        )
    return Finding(step, "ok", _described(response, "plaintext" if context is None else "TLS"))


def _described(response: ApiVersionsResponse, transport: str) -> str:
    features = response.finalized_features
    version = next((row.max_version_level for row in features if row.name == "metadata.version"), None)
    level = "" if version is None else f", metadata.version {version}"
    return f"Kafka over {transport}, {len(response.api_keys)} APIs{level}"


def _speaks_tls(host: str, port: int, timeout_s: float) -> bool:
    context = ssl.create_default_context()
    # This only detects TLS; it does not judge the certificate.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host, port), timeout_s) as plain,
            context.wrap_socket(plain, server_hostname=host),
        ):
            return True
    except ssl.SSLError as error:
        # A listener that requires a client certificate fails only after the handshake has begun.
        return "CERTIFICATE_REQUIRED" in str(error) or "ALERT" in str(error)
    except (OSError, ValueError):
        return False


# -- the cluster behind the address


def _examine_cluster(servers: list[str], timeout_s: float, settings: Mapping[str, Any]) -> Iterator[Finding]:
    from barnabas.clients.admin import KafkaAdminClient  # only needed if the first steps succeed

    limit_ms = int(timeout_s * 1_000)
    own = {
        "bootstrap.servers": servers,
        "client.id": "barnabas-doctor",
        "enable.metrics.push": False,
        "default.api.timeout.ms": limit_ms,
        "request.timeout.ms": limit_ms,
    }
    with KafkaAdminClient({**settings, **own}, fail_fast=True) as admin:
        yield from _examine_brokers(admin, servers, timeout_s)


def _examine_brokers(admin: KafkaAdminClient, servers: list[str], timeout_s: float) -> Iterator[Finding]:
    nodes = _advertised(admin, timeout_s)
    if nodes is None:
        yield Finding(
            "metadata",
            "error",
            "the broker did not send the metadata of the cluster",
            "it may still be starting, or have no controller; check its log",
        )
        return
    yield Finding("metadata", "ok", f"{len(nodes)} broker{'s' * (len(nodes) != 1)}: {', '.join(map(str, nodes))}")
    reachable = 0
    for node in nodes:
        finding = check_tcp(node.host, node.port, timeout_s, f"advertised, broker {node.id}")
        if finding.status == "ok":
            reachable += 1
            yield Finding(finding.step, "ok", f"{node.host}:{node.port}, {finding.what}")
        else:
            yield Finding(finding.step, "error", finding.what, _advertised_remedy(node.host, servers))
    if not reachable:
        return
    yield from _examine_state(admin, len(nodes))


def _advertised(admin: KafkaAdminClient, timeout_s: float) -> list[Any] | None:
    """Returns the brokers with their advertised addresses; None on a timeout.

    It reads the metadata of the client instead of running an operation. An operation would connect to one of the
    brokers, at an advertised address that may be wrong.
    """
    metadata = admin.core.runnable.metadata
    deadline = SYSTEM_CLOCK.hi_res_milliseconds() + timeout_s * 1_000
    with metadata.lock:
        while metadata.snapshot.is_bootstrap:
            remaining = deadline - SYSTEM_CLOCK.hi_res_milliseconds()
            if remaining <= 0:
                return None
            SYSTEM_CLOCK.wait(metadata.updated, remaining)
        return [metadata.snapshot.nodes[node_id] for node_id in sorted(metadata.snapshot.nodes)]


def _advertised_remedy(host: str, servers: list[str]) -> str:
    """Explains how to fix ``advertised.listeners``."""
    if host.startswith(_LOOPBACK) and not all(parse_address(one)[0].startswith(_LOOPBACK) for one in servers):
        return (
            f"every client resolves {host} to its own machine: set advertised.listeners of that broker to an address "
            "that clients can reach"
        )
    return (
        "clients connect to the advertised address, not to the bootstrap one: set advertised.listeners of that broker "
        "to an address that can be reached from here"
    )


def _examine_state(admin: KafkaAdminClient, brokers: int) -> Iterator[Finding]:
    try:
        quorum = admin.describe_metadata_quorum()
    except AuthorizationError as error:
        yield Finding("controller", "skipped", f"not authorized: {error}")
    except ApiError as error:
        yield Finding(
            "controller",
            "error",
            f"{error} ({Errors.for_exception(error).name})",
            "nothing can be created or changed without a majority of the controllers: start the missing ones",
        )
    else:
        count = len(quorum.voters)
        yield Finding("controller", "ok", f"node {quorum.leader_id} leads {count} voter{'s' * (count != 1)}")
    try:
        topics = admin.list_topics(list_internal=True)
        yield from _examine_topics(admin, list(topics), brokers)
    except ApiError as error:
        yield Finding("topics", "error", f"{error} ({Errors.for_exception(error).name})", "check the broker's log")
    yield _examine_access(admin)


def _examine_topics(admin: KafkaAdminClient, names: list[str], brokers: int) -> Iterator[Finding]:
    for name, purpose in ((GROUP_METADATA_TOPIC, "groups"), (TRANSACTION_STATE_TOPIC, "transactions")):
        step = f"topic {name}"
        if name not in names:
            yield Finding(step, "ok", f"does not exist yet; it is created when {purpose} are first used")
            continue
        description = admin.describe_topics([name])[name]
        without = [part.partition for part in description.partitions if part.leader is None]
        replicas = max(len(part.replicas) for part in description.partitions)
        if without:
            yield Finding(
                step,
                "error",
                f"{len(without)} of {len(description.partitions)} partitions have no leader, so {purpose} fail",
                "start the brokers that have their replicas",
            )
        elif replicas > brokers:
            yield Finding(
                step,
                "warning",
                f"needs {replicas} replicas, but there are {brokers} brokers",
                "start the missing brokers, or reduce its replication factor",
            )
        else:
            yield Finding(step, "ok", f"{len(description.partitions)} partitions, all with a leader")
    others = {name: one for name, one in admin.describe_topics(names, partial=True).items() if not one.is_internal}
    leaderless = sum(part.leader is None for one in others.values() for part in one.partitions)
    if leaderless:
        yield Finding("topics", "error", f"{leaderless} partitions have no leader", "start their brokers")
    else:
        topics = "1 topic" if len(others) == 1 else f"{len(others)} topics"
        yield Finding("topics", "ok", f"{topics}, all partitions with a leader")


def _examine_access(admin: KafkaAdminClient) -> Finding:
    from barnabas.common.errors import SecurityDisabledError

    try:
        acls = admin.describe_acls()
    except SecurityDisabledError:
        return Finding("access", "ok", "no authorizer: every client may do everything")
    except AuthorizationError as error:
        return Finding(
            "access", "warning", f"not authorized to list ACLs: {error}", "use a principal with Describe on the cluster"
        )
    except ApiError as error:
        return Finding("access", "skipped", f"{error} ({Errors.for_exception(error).name})")
    return Finding("access", "ok", f"an authorizer with {len(acls)} ACLs")
