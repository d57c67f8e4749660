"""Cipher suites: the names in ``ssl.cipher.suites`` are IANA's, and OpenSSL has its own.

Kafka's settings, Java's documents and the standards say ``TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256``; OpenSSL says
``ECDHE-RSA-AES128-GCM-SHA256``. Both are accepted here. Suites of TLS 1.3 have one name.
"""

from __future__ import annotations

import re
from typing import Final

from barnabas.common.config_def import ConfigError

TLS_1_3: Final = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
DEFAULT: Final = "@SECLEVEL=2:ECDHE+AESGCM:ECDHE+CHACHA20:DHE+AESGCM:DHE+CHACHA20:!aNULL:!aDSS"
"""For TLS 1.2: forward secrecy and authenticated encryption only."""
_IANA: Final = re.compile(
    r"TLS_(?P<exchange>ECDHE_ECDSA|ECDHE_RSA|DHE_RSA|RSA)_WITH_"
    r"(?P<cipher>AES_(?:128|256)_(?:GCM|CCM|CCM_8|CBC)|CHACHA20_POLY1305)(?:_(?P<digest>SHA|SHA256|SHA384))?"
)
_OPENSSL: Final = re.compile(
    r"(?:(?:ECDHE-ECDSA|ECDHE-RSA|DHE-RSA)-)?(?:AES(?:128|256)(?:-GCM|-CCM8?)?|CHACHA20-POLY1305)(?:-SHA(?:256|384)?)?"
)


def openssl_name(suite: str) -> str:
    """Returns OpenSSL's name of a TLS 1.2 suite.

    >>> openssl_name("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256")
    'ECDHE-RSA-AES128-SHA256'
    """
    if _OPENSSL.fullmatch(suite):
        return suite
    match = _IANA.fullmatch(suite)
    if match is None:
        raise ConfigError.invalid(
            "ssl.cipher.suites",
            suite,
            "it is not a supported cipher suite, such as TLS_AES_256_GCM_SHA384 or "
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        )
    exchange = "" if match["exchange"] == "RSA" else match["exchange"].replace("_", "-") + "-"
    cipher = match["cipher"]
    if cipher == "CHACHA20_POLY1305":
        return f"{exchange}CHACHA20-POLY1305"
    _, bits, mode = cipher.split("_", 2)
    mode = {"CBC": "", "CCM_8": "-CCM8"}.get(mode, f"-{mode}")
    digest = "" if match["digest"] is None else f"-{match['digest']}"
    return f"{exchange}AES{bits}{mode}{digest}"
