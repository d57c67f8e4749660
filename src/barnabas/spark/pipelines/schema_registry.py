"""A client of schema registries: Confluent's REST API, which most registries offer, and Apicurio's own.

    RegistryConfig("https://registry:8081", {"basic.auth.user.info": "${env:REGISTRY_LOGIN}"})
    RegistryConfig("http://apicurio:8080/apis/registry/v2", {"api": "apicurio", "id.bytes": "8", "id.kind": "globalId"})

| setting | |
|---|---|
| ``basic.auth.user.info`` | user and password, with a colon between |
| ``bearer.auth.token`` | a token |
| ``ssl.*`` | trust store and key store, as Kafka's clients have them |
| ``api`` | ``confluent`` (default; also Apicurio's ``/apis/ccompat/v7``, Redpanda, Karapace) or ``apicurio`` |
| ``id.bytes`` | size of the ids in front of values: 4 (default), or 8 as Apicurio 2 writes them |
| ``id.kind`` | of the API ``apicurio``: what an id stands for, ``contentId`` (default) or ``globalId`` |
| ``request.timeout.ms``, ``retries`` | of one request, 10000; how often a request is repeated, 5 |

Values may be variables of config providers, which only the process that sends requests resolves. A schema never changes
once it has an id, so each is asked for once. A registry that cannot be reached is an error; an id that it does not know
is another one, which says that the record is bad.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, urlsplit

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.config_providers import CONFIG_PROVIDERS
from barnabas.security.sasl.oauth_http import HttpError, check_url, fetch_json
from barnabas.security.tls.ssl_config import SslSettings
from barnabas.security.tls.ssl_factory import Mode, SslFactory
from barnabas.spark.config_variables import resolved
from barnabas.spark.pipelines.schema_wire import WireFormat

logger = logging.getLogger(__name__)

CONFLUENT: Final = "confluent"
APICURIO: Final = "apicurio"
AVRO: Final = "AVRO"
JSON: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"
_NAMES: Final = frozenset(
    {"basic.auth.user.info", "bearer.auth.token", "api", "id.bytes", "id.kind", "request.timeout.ms", "retries"}
)
_ID_KINDS: Final = {"contentId": "contentIds", "globalId": "globalIds"}
_NOT_FOUND: Final = 404
_UNKNOWN: Final = frozenset({40401, 40402, 40403})
"""Confluent's codes: no such subject, version, schema."""
_PAUSE_MS: Final = 200
_MOST_CACHED: Final = 10_000
_DEEPEST: Final = 20


class RegistryError(Exception):
    """The registry does not respond as it should. The batch is to run again."""


class SchemaNotFoundError(Exception):
    """The registry responds, and has no such schema."""


@dataclass(frozen=True, slots=True)
class RegistryConfig:
    """Where the registry is, and how to reach it."""

    url: str
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        check_url(self.url, "the registry")
        for name in self.settings:
            if name not in _NAMES and not name.startswith(("ssl.", CONFIG_PROVIDERS)):
                raise ValueError(f"there is no setting {name} of a registry; there are {', '.join(sorted(_NAMES))}")
        if self.api not in {CONFLUENT, APICURIO}:
            raise ValueError(f"api must be {CONFLUENT} or {APICURIO}: {self.api}")
        if self.settings.get("id.kind", "contentId") not in _ID_KINDS:
            raise ValueError(f"id.kind must be contentId or globalId: {self.settings['id.kind']}")
        if "id.kind" in self.settings and self.api != APICURIO:
            raise ValueError(f"id.kind is of the API {APICURIO}: Confluent's has one kind of ids")
        _ = self.wire

    @property
    def api(self) -> str:
        return self.settings.get("api", CONFLUENT)

    @property
    def wire(self) -> WireFormat:
        return WireFormat(_number(self.settings, "id.bytes", 4))


def _number(settings: Mapping[str, str], name: str, default: int) -> int:
    text = settings.get(name, str(default))
    if not text.isdecimal():
        raise ValueError(f"{name} must be a number: {text}")
    return int(text)


@dataclass(frozen=True, slots=True)
class RegistrySchema:
    """A schema, with those that it refers to."""

    kind: str
    text: str
    """JSON; for Protobuf a file descriptor in Base64."""
    references: tuple[tuple[str, RegistrySchema], ...] = ()
    """Name within the schema, and schema."""


class RegistryClient:
    """Asks a registry for schemas, and remembers them."""

    def __init__(self, config: RegistryConfig, clock: Clock = SYSTEM_CLOCK) -> None:
        self._config = config
        self._clock = clock
        settings = resolved(config.settings)
        self._headers = _credentials(settings)
        self._timeout_ms = _number(settings, "request.timeout.ms", 10_000)
        self._retries = _number(settings, "retries", 5)
        tls = {name: value for name, value in settings.items() if name.startswith("ssl.")}
        is_https = urlsplit(config.url).scheme == "https"
        self._tls = SslFactory(SslSettings.of(tls), Mode.CLIENT).context if is_https else None
        self._cached: dict[tuple[str, int], RegistrySchema] = {}

    def schema(self, schema_id: int, kind: str) -> RegistrySchema:
        """The schema with an id; `SchemaNotFoundError` if there is none."""
        found = self._cached.get((kind, schema_id))
        if found is None:
            if len(self._cached) >= _MOST_CACHED:
                self._cached.clear()
            found = self._native(schema_id, kind) if self._config.api == APICURIO else self._confluent(schema_id, kind)
            self._cached[kind, schema_id] = found
        return found

    def version(self, subject: str, version: str) -> int:
        """The id of a version of a subject: a number, or ``latest``."""
        if self._config.api == APICURIO:
            raise ValueError("subjects are of Confluent's API: use Apicurio's /apis/ccompat/v7")
        return int(self._get(f"/subjects/{quote(subject, safe='')}/versions/{version}", f"subject {subject}")["id"])

    # ------------------------------------------------------------------------------------------------ Confluent's API

    def _confluent(self, schema_id: int, kind: str) -> RegistrySchema:
        suffix = _suffix(kind)
        return self._resolved(self._get(f"/schemas/ids/{schema_id}{suffix}", f"schema {schema_id}"), suffix, 0)

    def _resolved(self, found: Any, suffix: str, depth: int) -> RegistrySchema:
        if depth > _DEEPEST:
            raise RegistryError(f"{self._config.url}: references between schemas are deeper than {_DEEPEST}")
        references = []
        for one in found.get("references") or ():
            path = f"/subjects/{quote(one['subject'], safe='')}/versions/{one['version']}{suffix}"
            referred = self._get(path, f"version {one['version']} of subject {one['subject']}")
            references.append((one["name"], self._resolved(referred, suffix, depth + 1)))
        return RegistrySchema(found.get("schemaType", AVRO), found["schema"], tuple(references))

    # ------------------------------------------------------------------------------------------------ Apicurio's API

    def _native(self, schema_id: int, kind: str) -> RegistrySchema:
        ids = _ID_KINDS[self._config.settings.get("id.kind", "contentId")]
        path = f"/ids/{ids}/{schema_id}"
        content = self._get(path, f"{ids[:-1]} {schema_id}")
        references = self._get(f"{path}/references", f"{ids[:-1]} {schema_id}")
        return RegistrySchema(kind, json.dumps(content), self._native_references(references, kind, 0))

    def _native_references(
        self, references: list[Any], kind: str, depth: int
    ) -> tuple[tuple[str, RegistrySchema], ...]:
        if depth > _DEEPEST:
            raise RegistryError(f"{self._config.url}: references between schemas are deeper than {_DEEPEST}")
        found = []
        for one in references:
            group, artifact = (quote(one.get(name) or "default", safe="") for name in ("groupId", "artifactId"))
            path = f"/groups/{group}/artifacts/{artifact}/versions/{one['version']}"
            what = f"version {one['version']} of artifact {one['artifactId']}"
            # Version 3 of the API tells the content of a version from its description.
            content = f"{path}/content" if self._config.url.rstrip("/").endswith("v3") else path
            text = json.dumps(self._get(content, what))
            inner = self._native_references(self._get(f"{path}/references", what), kind, depth + 1)
            found.append((one["name"], RegistrySchema(kind, text, inner)))
        return tuple(found)

    # ------------------------------------------------------------------------------------------------ requests

    def _get(self, path: str, what: str) -> Any:
        url = f"{self._config.url.rstrip('/')}{path}"
        for attempt in range(self._retries + 1):
            try:
                return fetch_json(url, headers=self._headers, ssl_context=self._tls, timeout_ms=self._timeout_ms)
            except HttpError as error:
                if error.status == _NOT_FOUND and _is_unknown(error.fields):
                    raise SchemaNotFoundError(f"the schema registry has no {what}") from None
                if error.permanent or attempt == self._retries:
                    raise RegistryError(f"schema registry: {error}") from None
                logger.warning("Schema registry: %s; trying again", error)
                self._clock.sleep(_PAUSE_MS * 2**attempt)
        raise AssertionError("unreachable")


def _suffix(kind: str) -> str:
    # As a descriptor: there is no parser of .proto files among the dependencies.
    return "?format=serialized" if kind == PROTOBUF else ""


def _is_unknown(fields: Mapping[str, Any]) -> bool:
    """Whether a 404 speaks of the schema. Others come from a wrong address or a proxy, and do not make a record bad."""
    name = str(fields.get("name", ""))
    return fields.get("error_code") in _UNKNOWN or (name.endswith("NotFoundException") and name != "NotFoundException")


def _credentials(settings: Mapping[str, str]) -> dict[str, str]:
    headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
    login, token = settings.get("basic.auth.user.info"), settings.get("bearer.auth.token")
    if login and token:
        raise ValueError("a registry takes either basic.auth.user.info or bearer.auth.token")
    if login:
        if ":" not in login:
            raise ValueError("basic.auth.user.info must be a user and a password, with a colon between")
        headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
    if token:
        headers["Authorization"] = f"Bearer {token}"
    return headers
