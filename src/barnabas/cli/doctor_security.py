"""The steps of ``barnabas doctor`` that concern TLS and SASL.

Each failure is one sentence with the value that is wrong: the dates of a certificate and this machine's clock, the
names that a certificate is for, the authority that issued it, the mechanisms that a listener enables.
"""

from __future__ import annotations

import datetime as dt
import socket
import ssl
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.cli.doctor_probe import HandshakeError, Probe, ProbeError, ask_api_versions, enabled_mechanisms
from barnabas.cli.finding import Finding
from barnabas.common.clock import SYSTEM_CLOCK
from barnabas.common.errors import AuthenticationError, UnsupportedSaslMechanismError

if TYPE_CHECKING:
    from barnabas.clients.common.client_sasl import ClientMechanism

EXPIRED: Final = 10
NOT_YET_VALID: Final = 9
WRONG_NAME: Final = frozenset({62, 64})
UNKNOWN_ISSUER: Final = frozenset({2, 18, 19, 20, 21})
"""OpenSSL's codes of failed verifications."""


class Certificate(NamedTuple):
    """The fields of a certificate that findings show."""

    subject: str
    issuer: str
    names: str
    begins: dt.datetime
    ends: dt.datetime


def check_tls(host: str, port: int, timeout_s: float, context: ssl.SSLContext) -> Finding:
    """Checks the TLS handshake with the settings of the client."""
    step = f"tls {host}:{port}"
    try:
        with (
            socket.create_connection((host, port), timeout_s) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            version = secure.version()
            certificate = _parsed(secure.getpeercert(binary_form=True))
    except ssl.SSLCertVerificationError as error:
        return Finding(step, "error", *_explain_certificate(host, port, timeout_s, error))
    except OSError as error:  # includes TimeoutError, ConnectionError and ssl.SSLError
        if _speaks_plaintext(host, port, timeout_s):
            return Finding(
                step,
                "error",
                "the listener does not use TLS",
                "set security.protocol=PLAINTEXT or SASL_PLAINTEXT, or use the port of a listener with TLS",
            )
        return tls_failure(step, error)
    detail = "" if certificate is None else f", {certificate.subject}, valid until {_shown(certificate.ends)}"
    return Finding(step, "ok", f"{version}{detail}")


def tls_failure(step: str, error: OSError) -> Finding:
    """Explains a failure that is not about the broker's certificate."""
    from barnabas.network.transport.tls_errors import explain_tls_error

    if isinstance(error, ssl.SSLError):
        return Finding(
            step, "error", f"TLS fails: {explain_tls_error(error)}", "check the ssl.* settings on both sides"
        )
    return Finding(step, "error", f"the TLS handshake fails: {error}", "check that this is a listener with TLS")


def _speaks_plaintext(host: str, port: int, timeout_s: float) -> bool:
    try:
        ask_api_versions(host, port, timeout_s)
    except (HandshakeError, ProbeError):
        return False
    return True


def _explain_certificate(
    host: str, port: int, timeout_s: float, error: ssl.SSLCertVerificationError
) -> tuple[str, str]:
    """Returns what is wrong with the broker's certificate, and what to do."""
    found = _unverified_certificate(host, port, timeout_s)
    now = _shown(dt.datetime.fromtimestamp(SYSTEM_CLOCK.milliseconds() / 1000, dt.UTC))
    code = error.verify_code
    if code == EXPIRED:
        when = "" if found is None else f" on {_shown(found.ends)}"
        return (
            f"the broker's certificate has expired{when}; this machine's clock shows {now}",
            "renew the certificate; or correct the clock, if it is wrong",
        )
    if code == NOT_YET_VALID:
        when = "" if found is None else f" before {_shown(found.begins)}"
        return (
            f"the broker's certificate is not valid{when}; this machine's clock shows {now}",
            "correct the clock of this machine, or of the machine that issued the certificate",
        )
    if code in WRONG_NAME:
        names = "another host" if found is None else found.names
        return (
            f"the broker's certificate is for {names}, not for {host}",
            f"connect by a name in the certificate, or add {host} to its subject alternative names",
        )
    if code in UNKNOWN_ISSUER:
        issuer = "an authority" if found is None else found.issuer
        return (
            f"the broker's certificate was issued by {issuer}, which is not in the trust store",
            "add the certificate of that authority to ssl.truststore.location (or ssl.ca.location)",
        )
    return f"the broker's certificate is refused: {error.verify_message}", "check the broker's certificate"


def _unverified_certificate(host: str, port: int, timeout_s: float) -> Certificate | None:
    """Connects again without verification, only to read the certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with (
        suppress(OSError),
        socket.create_connection((host, port), timeout_s) as plain,
        context.wrap_socket(plain, server_hostname=host) as secure,
    ):
        return _parsed(secure.getpeercert(binary_form=True))
    return None


def _parsed(der: bytes | None) -> Certificate | None:
    """Parses a certificate; None without the package cryptography."""
    try:
        from cryptography import x509
    except ImportError:
        return None
    if der is None:
        return None
    try:
        found = x509.load_der_x509_certificate(der)
        names: list[Any] = []
        with suppress(x509.ExtensionNotFound):
            general = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            names = [*general.get_values_for_type(x509.DNSName), *general.get_values_for_type(x509.IPAddress)]
        subject = found.subject.rfc4514_string()
        return Certificate(
            subject,
            found.issuer.rfc4514_string(),
            ", ".join(map(str, names)) or subject,
            found.not_valid_before_utc,
            found.not_valid_after_utc,
        )
    except ValueError:
        return None


def _shown(when: dt.datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M} UTC"


# -- SASL


def check_no_sasl(host: str, port: int, timeout_s: float, context: ssl.SSLContext | None) -> Finding | None:
    """Returns an error if the listener uses SASL and the client does not; None if all is well."""
    enabled = enabled_mechanisms(host, port, timeout_s, context)
    if not enabled:
        return None
    protocol = "SASL_PLAINTEXT" if context is None else "SASL_SSL"
    return Finding(
        f"sasl {host}:{port}",
        "error",
        f"the listener requires authentication by SASL: {', '.join(enabled)}",
        f"set security.protocol={protocol}, sasl.mechanism, and sasl.username and sasl.password or sasl.jaas.config",
    )


def check_sasl(
    host: str, port: int, timeout_s: float, context: ssl.SSLContext | None, mechanism: ClientMechanism
) -> Finding:
    """Authenticates as the client would."""
    from barnabas.security.sasl.client_authenticator import SaslClientAuthenticator

    step = f"sasl {host}:{port}"
    exchange = SaslClientAuthenticator(mechanism.name, partial(mechanism.begin, host), client_id="barnabas-doctor")
    try:
        with Probe(host, port, timeout_s, context) as probe:
            frame = exchange.start()
            while frame:
                frame = exchange.receive(probe.exchange(frame))
    except UnsupportedSaslMechanismError:
        enabled = enabled_mechanisms(host, port, timeout_s, context)
        what = f"the listener does not enable {mechanism.name}; it enables {', '.join(enabled)}"
        return Finding(step, "error", what, "set sasl.mechanism to one of these")
    except AuthenticationError as error:
        problem = token_problem(mechanism) if mechanism.name == "OAUTHBEARER" else None
        if problem is not None:
            return Finding(step, "error", problem, "correct the clock of this machine, or of the issuer of tokens")
        return Finding(step, "error", f"the broker refuses the credentials: {error}", _credentials_remedy(mechanism))
    except (HandshakeError, ProbeError, OSError) as error:
        what = f"the exchange fails: {error}"
        return Finding(step, "error", what, "check that this listener uses SASL; the broker's log may have the reason")
    return Finding(step, "ok", f"authenticated with {mechanism.name}")


def token_problem(mechanism: ClientMechanism) -> str | None:
    """Returns what is wrong with the times of the client's token; None if they are right, or cannot be read."""
    from barnabas.security.sasl.oauth_token import TokenRejectedError, parse_jwt, seconds_claim

    now_s = SYSTEM_CLOCK.milliseconds() / 1000
    try:
        _, claims, _ = parse_jwt(mechanism.begin("").initial_response().decode().partition("Bearer ")[2].strip("\1"))
        begins, ends = seconds_claim(claims, "nbf") or seconds_claim(claims, "iat"), seconds_claim(claims, "exp")
    except (TokenRejectedError, AuthenticationError):
        return None
    clock = f"this machine's clock shows {_shown(dt.datetime.fromtimestamp(now_s, dt.UTC))}"
    if ends is not None and ends <= now_s:
        return f"the token has expired on {_shown(dt.datetime.fromtimestamp(ends, dt.UTC))}; {clock}"
    if begins is not None and begins > now_s:
        return f"the token is not valid before {_shown(dt.datetime.fromtimestamp(begins, dt.UTC))}; {clock}"
    return None


def _credentials_remedy(mechanism: ClientMechanism) -> str:
    if mechanism.name == "OAUTHBEARER":
        return (
            "check issuer, audience, scope and expiry of the token, and that the clocks of this machine, the broker "
            "and the issuer agree"
        )
    return "check user name and password; the broker does not tell which of them is wrong"
