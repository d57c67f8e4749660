"""HTTP requests to identity providers: bounded in size and time, without redirects."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any, Final
from urllib.parse import urlsplit

from barnabas.common.errors import BarnabasError, InvalidConfigurationError

MAX_BYTES: Final = 1 << 20
DEFAULT_TIMEOUT_MS: Final = 10_000
_PERMANENT: Final = frozenset({400, 401, 402, 403, 404, 405, 406, 407, 409, 410, 411, 412, 413, 414, 415, 501, 505})
"""Statuses that another attempt will not change."""


class HttpError(BarnabasError):
    """A request failed; ``permanent`` if another attempt is useless.

    ``status`` and ``fields`` are the status and the JSON object of the response, if there were such.
    """

    def __init__(
        self,
        message: str,
        *,
        permanent: bool = False,
        status: int | None = None,
        fields: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.permanent = permanent
        self.status = status
        self.fields = fields or {}


def check_url(url: str, setting: str) -> str:
    """Returns a URL with the scheme http or https and a host; the error does not show a password in it."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise InvalidConfigurationError(f"{setting} must be a URL with http or https and a host")
    if parts.username is not None or parts.password is not None:
        raise InvalidConfigurationError(f"{setting} must not contain a user or a password")
    return url


def fetch_json(
    url: str,
    data: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    ssl_context: ssl.SSLContext | None = None,
    timeout_ms: int = DEFAULT_TIMEOUT_MS,
) -> Any:
    """Sends a GET or, with data, a POST, and returns the JSON of the response; raises `HttpError`."""
    request = urllib.request.Request(url, data, {"Accept": "application/json", **(headers or {})})  # noqa: S310 - checked
    opener = urllib.request.OpenerDirector()
    # No handler of redirects: one would carry a secret to a server that nobody has configured.
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(context=ssl_context),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    try:
        with opener.open(request, timeout=timeout_ms / 1000) as response:
            body = response.read(MAX_BYTES + 1)
    except urllib.error.HTTPError as error:
        with error:
            fields = _fields(error)
            raise HttpError(
                f"{url} responded with status {error.code}{_explanation(fields)}",
                permanent=error.code in _PERMANENT,
                status=error.code,
                fields=fields,
            ) from None
    except (OSError, HTTPException) as error:
        raise HttpError(f"{url} cannot be reached: {getattr(error, 'reason', error)}") from None
    if len(body) > MAX_BYTES:
        raise HttpError(f"the response of {url} has more than {MAX_BYTES} bytes")
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise HttpError(f"the response of {url} is not JSON") from None


def _fields(error: urllib.error.HTTPError) -> Mapping[str, Any]:
    try:
        fields = json.loads(error.read(MAX_BYTES))
    except (ValueError, OSError, HTTPException, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def _explanation(fields: Mapping[str, Any]) -> str:
    """Returns the error fields of RFC 6749, section 5.2, which contain no secrets."""
    if "error" not in fields:
        return ""
    return f": {fields['error']} {fields.get('error_description', '')}".rstrip()[:500]
