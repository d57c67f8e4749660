"""Explains failed TLS handshakes in words that help.

OpenSSL names failures by constants such as ``TLSV1_ALERT_UNKNOWN_CA``, and half of them are about the *peer's* opinion
of our certificate. A message here says which side refused what, and which setting to look at.
"""

from __future__ import annotations

import ssl
from typing import Final

ALERTS: Final = {
    "CERTIFICATE_REQUIRED": "the peer requires a certificate; set ssl.keystore.location, or ssl.keystore.key and "
    "ssl.keystore.certificate.chain",
    "HANDSHAKE_FAILURE": "the peer found no common TLS parameters, or requires a certificate",
    "UNKNOWN_CA": "the peer does not trust our certificate: no certificate of its issuer is in the peer's trust store",
    "BAD_CERTIFICATE": "the peer rejected our certificate as invalid, or requires a certificate and got none; see "
    "ssl.keystore.location",
    "CERTIFICATE_EXPIRED": "the peer rejected our certificate because it has expired or is not yet valid",
    "CERTIFICATE_UNKNOWN": "the peer rejected our certificate; its log has the reason",
    "CERTIFICATE_REVOKED": "the peer rejected our certificate because it is revoked",
    "UNSUPPORTED_CERTIFICATE": "the peer does not accept this kind of certificate",
    "PROTOCOL_VERSION": "the peer does not support any of our TLS versions; see ssl.enabled.protocols",
    "INSUFFICIENT_SECURITY": "the peer requires stronger cipher suites; see ssl.cipher.suites",
    "NO_APPLICATION_PROTOCOL": "the peer expects another application protocol",
    "UNRECOGNIZED_NAME": "the peer has no certificate for this host name",
    "INTERNAL_ERROR": "the peer had an internal error",
    "DECRYPT_ERROR": "the peer could not verify a signature of the handshake",
    "ACCESS_DENIED": "the peer denied access",
    "DECODE_ERROR": "the peer could not parse the handshake",
    "ILLEGAL_PARAMETER": "the peer found an invalid value in the handshake",
    "UNEXPECTED_MESSAGE": "the peer did not expect this message; it may not speak TLS",
    "BAD_RECORD_MAC": "the peer received a damaged record",
    "RECORD_OVERFLOW": "the peer received a record that is too long",
}
"""By the end of OpenSSL's reason, after ``..._ALERT_``."""

REASONS: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client sent no certificate, which ssl.client.auth=required demands",
    "NO_SHARED_CIPHER": "no cipher suite in common; see ssl.cipher.suites and the type of the server's key",
    "UNSUPPORTED_PROTOCOL": "no TLS version in common; see ssl.enabled.protocols",
    "VERSION_TOO_LOW": "the peer's TLS version is too old; see ssl.enabled.protocols",
    "NO_PROTOCOLS_AVAILABLE": "no TLS version is enabled; see ssl.enabled.protocols",
    "WRONG_VERSION_NUMBER": "the peer does not speak TLS, or an unknown version of it",
    "WRONG_SSL_VERSION": "the peer does not speak TLS, or an unknown version of it",
    "HTTP_REQUEST": "the peer sent a plaintext HTTP request",
    "HTTPS_PROXY_REQUEST": "the peer sent a plaintext HTTP proxy request",
    "UNEXPECTED_MESSAGE": "the peer sent a message out of order",
    "BAD_RECORD_TYPE": "the peer does not speak TLS",
    "EXCESSIVE_MESSAGE_SIZE": "the peer's certificates or extensions are too large",
    "ENCRYPTED_LENGTH_TOO_LONG": "the peer sent a record that is too long",
    "PACKET_LENGTH_TOO_LONG": "the peer sent a record that is too long",
    "DECRYPTION_FAILED_OR_BAD_RECORD_MAC": "the peer sent a damaged record",
    "RECORD_LAYER_FAILURE": "the peer sent a damaged record",  # the same, by OpenSSL 3.5
    "NO_SUITABLE_SIGNATURE_ALGORITHM": "no signature algorithm in common; see the type of the server's key",
    "NO_CERTIFICATE_SET": "no certificate is configured; set ssl.keystore.location",
}


def explain_tls_error(error: Exception) -> str:
    """Returns one sentence about a failure of OpenSSL."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the peer's certificate is not accepted: {error.verify_message}"
    reason: str | None = getattr(error, "reason", None)
    if not reason:
        return str(error) or type(error).__name__
    _, marker, alert = reason.partition("_ALERT_")
    if marker:
        return ALERTS.get(alert, f"the peer sent the TLS alert {alert.lower().replace('_', ' ')}")
    return REASONS.get(reason, reason.lower().replace("_", " "))
