"""The key set of a token issuer (JWKS, RFC 7517), from a file or from a URL that a thread reads again and again.

Validation never waits for the network: a token whose key is not known is rejected, and the thread reads the key set
early. A client that invents key ids causes at most one early read per EARLY_READ_INTERVAL_MS, and one per id and
minute.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.errors import InvalidConfigurationError
from barnabas.common.extras import extra
from barnabas.security.reloaded_file import ReloadedFile
from barnabas.security.sasl.oauth_http import MAX_BYTES, HttpError
from barnabas.security.sasl.token_validator import VerificationKey, algorithms_of

log = logging.getLogger(__name__)

MISSING_KEY_INTERVAL_MS: Final = 60_000
EARLY_READ_INTERVAL_MS: Final = 10_000
"""The minimum time between two early reads, whatever the key ids: the cache of missing keys forgets old ids."""
MAX_MISSING_KEYS: Final = 16
MAX_KEY_ID: Final = 1_000
MAX_KEYS: Final = 1_000
MAX_WAIT_MS: Final = 86_400_000
"""A condition cannot wait for years."""


class StaticKeySet:
    """Keys in memory."""

    def __init__(self, keys: Mapping[str | None, VerificationKey]) -> None:
        self._keys = dict(keys)

    @classmethod
    def parse(cls, document: Any) -> StaticKeySet:
        """Takes the JSON of a key set. Keys that cannot verify signatures, or are not understood, are left out."""
        with extra("security", "OAUTHBEARER with signed tokens"):
            import jwt
        entries = document.get("keys") if isinstance(document, dict) else None
        if not isinstance(entries, list) or len(entries) > MAX_KEYS:
            raise ValueError("a key set must be a JSON object with a list of keys")
        keys: dict[str | None, VerificationKey] = {}
        for entry in entries:
            if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
                continue
            algorithms = algorithms_of(entry)
            if not algorithms:
                continue
            try:
                key = jwt.PyJWK(entry, algorithm=min(algorithms)).key
            except Exception as error:  # noqa: BLE001 - the library raises many kinds for bad key material
                log.warning("Ignoring a key of a key set that cannot be read: %s", type(error).__name__)
                continue
            key_id = entry.get("kid")
            keys[key_id if isinstance(key_id, str) else None] = VerificationKey(key, algorithms)
        return cls(keys)

    def find(self, key_id: str | None) -> VerificationKey | None:
        if key_id is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(key_id)

    def __contains__(self, key_id: str) -> bool:
        return key_id in self._keys

    def __len__(self) -> int:
        return len(self._keys)


class JwksFile:
    """The key set of a file, which is read again when it has changed."""

    def __init__(self, path: str | Path) -> None:
        self._file = ReloadedFile(path, _read_key_set)

    def find(self, key_id: str | None) -> VerificationKey | None:
        return self._file.contents().find(key_id)


def _read_key_set(path: Path) -> StaticKeySet:
    try:
        with path.open("rb") as file:
            return StaticKeySet.parse(json.loads(file.read(MAX_BYTES)))
    except OSError as error:
        raise InvalidConfigurationError(f"cannot read key set {path}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise InvalidConfigurationError(f"{path} is not a JSON key set") from None


class RefreshingJwks:
    """The key set of a URL.

    `start` reads it once, and fails if that fails. Then a thread reads it every ``refresh_ms``, and early if a token
    has an unknown key. A read that fails is repeated with growing pauses; the last keys stay valid.
    """

    def __init__(
        self,
        fetch: Callable[[], Any],
        *,
        refresh_ms: int = 3_600_000,
        retry_backoff_ms: int = 100,
        retry_backoff_max_ms: int = 10_000,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """``fetch`` returns the JSON of the key set; it may wait, and raises `HttpError`."""
        self._fetch = fetch
        self._refresh_ms = refresh_ms
        self._backoff_ms = retry_backoff_ms
        self._backoff_max_ms = retry_backoff_max_ms
        self._clock = clock
        self._keys = StaticKeySet({})
        self._changed = threading.Condition()
        """Guards the fields below. Nothing else is locked inside it, and nothing is fetched while it is held."""
        self._missing: OrderedDict[str, int] = OrderedDict()
        """When each unknown key id may cause another read."""
        self._next_read_ms = 0
        self._next_early_read_ms = 0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="jwks-refresh", daemon=True)

    def start(self) -> None:
        try:
            self._keys = self._read()
        except HttpError as error:
            raise InvalidConfigurationError(f"cannot read the key set of the token issuer: {error}") from None
        self._next_read_ms = self._clock.hi_res_milliseconds() + self._refresh_ms
        self._thread.start()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(1)  # it may be in a read, which ends by itself

    def find(self, key_id: str | None) -> VerificationKey | None:
        found = self._keys.find(key_id)
        if found is None and key_id is not None and len(key_id) <= MAX_KEY_ID:
            self._note_missing(key_id)
        return found

    def _note_missing(self, key_id: str) -> None:
        with self._changed:
            now_ms = self._clock.hi_res_milliseconds()
            if self._missing.get(key_id, now_ms) > now_ms:
                return
            self._missing[key_id] = now_ms + MISSING_KEY_INTERVAL_MS
            self._missing.move_to_end(key_id)
            if len(self._missing) > MAX_MISSING_KEYS:
                self._missing.popitem(last=False)
            early_read_ms = max(now_ms, self._next_early_read_ms)
            if early_read_ms < self._next_read_ms:
                self._next_read_ms = early_read_ms
                self._next_early_read_ms = early_read_ms + EARLY_READ_INTERVAL_MS
                self._changed.notify_all()

    def _read(self) -> StaticKeySet:
        try:
            return StaticKeySet.parse(self._fetch())
        except ValueError as error:
            raise HttpError(str(error)) from None

    def _run(self) -> None:
        backoff_ms = self._backoff_ms
        while self._wait():
            try:
                self._keys = self._read()
                pause_ms, backoff_ms = self._refresh_ms, self._backoff_ms
            except Exception as error:  # noqa: BLE001 - the thread goes on; without it no new key would ever be known
                pause_ms, backoff_ms = backoff_ms, min(2 * backoff_ms, self._backoff_max_ms)
                log.warning("Keeping the last key set: %s", error if isinstance(error, HttpError) else repr(error))
            with self._changed:
                for key_id in [one for one in self._missing if one in self._keys]:
                    del self._missing[key_id]
                self._next_read_ms = self._clock.hi_res_milliseconds() + pause_ms

    def _wait(self) -> bool:
        """Waits until the next read is due; false if there will be none."""
        with self._changed:
            while not self._closed:
                remaining_ms = self._next_read_ms - self._clock.hi_res_milliseconds()
                if remaining_ms <= 0:
                    return True
                self._clock.wait(self._changed, min(remaining_ms, MAX_WAIT_MS))
            return False


def is_file_url(url: str) -> bool:
    return urlsplit(url).scheme == "file"


def path_of(url: str) -> str:
    """Returns the path of a file URL."""
    return url2pathname(urlsplit(url).path)
