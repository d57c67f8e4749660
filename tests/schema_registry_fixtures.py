"""A schema registry on a real socket: Confluent's API and Apicurio's own, with what went wrong scripted."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

APICURIO_V2 = "/apis/registry/v2"
APICURIO_V3 = "/apis/registry/v3"


class ScriptedRegistry:
    """Schemas by id, and versions of subjects. Ids of Apicurio's kinds are the same."""

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.serialized: dict[int, str] = {}
        """Protobuf: the file descriptor in Base64."""
        self.subjects: dict[str, list[int]] = {}
        self.script: list[tuple[int, bytes]] = []
        """Statuses and bodies of the next responses, whatever is asked for."""
        self.authorization: str | None = None
        self.paths: list[str] = []
        self.url = ""

    def register(
        self, subject: str, schema: Any, kind: str = "AVRO", references: Any = (), descriptor: str = ""
    ) -> int:
        """Adds a version of a subject; returns the id of the schema."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        entry: dict[str, Any] = {"schema": text}
        if kind != "AVRO":
            entry["schemaType"] = kind
        if references:
            entry["references"] = list(references)
        schema_id = next((one for one, known in self.schemas.items() if known == entry), len(self.schemas) + 1)
        self.schemas[schema_id] = entry
        if descriptor:
            self.serialized[schema_id] = descriptor
        versions = self.subjects.setdefault(subject, [])
        if schema_id not in versions:
            versions.append(schema_id)
        return schema_id

    # ------------------------------------------------------------------------------------------------ responses

    def respond(self, method: str, target: str, body: bytes, authorization: str | None) -> tuple[int, bytes]:
        self.paths.append(target)
        if self.script:
            return self.script.pop(0)
        if self.authorization is not None and authorization != self.authorization:
            return 401, b'{"error_code": 401, "message": "Unauthorized"}'
        parts = urlsplit(target)
        for prefix in (APICURIO_V2, APICURIO_V3):
            if parts.path.startswith(prefix):
                return self._apicurio([unquote(one) for one in parts.path.removeprefix(prefix).split("/")[1:]])
        names = [unquote(one) for one in parts.path.split("/")[1:]]
        return self._confluent(method, names, parse_qs(parts.query), body)

    def _confluent(self, method: str, names: list[str], query: Any, body: bytes) -> tuple[int, bytes]:
        serialized = query.get("format") == ["serialized"]
        if names[:2] == ["schemas", "ids"]:
            return self._entry(int(names[2]), serialized, {})
        if names[0] == "subjects":
            subject = names[1]
            if method == "POST":
                sent = json.loads(body)
                schema_id = self.register(
                    subject, sent["schema"], sent.get("schemaType", "AVRO"), sent.get("references") or ()
                )
                version = self.subjects[subject].index(schema_id) + 1
                return _ok({**self.schemas[schema_id], "id": schema_id, "subject": subject, "version": version})
            versions = self.subjects.get(subject)
            if versions is None:
                return _error(40401, f"Subject '{subject}' not found.")
            version = len(versions) if names[3] == "latest" else int(names[3])
            if version > len(versions):
                return _error(40402, f"Version {version} not found.")
            schema_id = versions[version - 1]
            return self._entry(schema_id, serialized, {"id": schema_id, "subject": subject, "version": version})
        return 404, b"<html>no such page</html>"

    def _entry(self, schema_id: int, serialized: bool, further: dict[str, Any]) -> tuple[int, bytes]:
        if schema_id not in self.schemas:
            return _error(40403, f"Schema {schema_id} not found")
        entry = dict(self.schemas[schema_id])
        if serialized and schema_id in self.serialized:
            entry["schema"] = self.serialized[schema_id]
        return _ok({**entry, **further})

    def _apicurio(self, names: list[str]) -> tuple[int, bytes]:
        wants_references = names[-1] == "references"
        # ids/KIND/ID or groups/GROUP/artifacts/ARTIFACT/versions/VERSION[/content]
        schema_id = int(names[2]) if names[0] == "ids" else self.subjects[names[3]][int(names[5]) - 1]
        if schema_id not in self.schemas:
            message = f"No content with id/hash '{schema_id}' was found."
            return 404, json.dumps({"error_code": 404, "message": message, "name": "ContentNotFoundException"}).encode()
        if wants_references:
            listed = self.schemas[schema_id].get("references", ())
            found = [(one["name"], one["subject"], one["version"]) for one in listed]
            return _ok([dict(zip(("name", "artifactId", "version"), one, strict=True)) for one in found])
        return 200, self.schemas[schema_id]["schema"].encode()


def _ok(content: Any) -> tuple[int, bytes]:
    return 200, json.dumps(content).encode()


def _error(code: int, message: str) -> tuple[int, bytes]:
    return 404, json.dumps({"error_code": code, "message": message}).encode()


@contextmanager
def running_registry(tls: ssl.SSLContext | None = None) -> Iterator[ScriptedRegistry]:
    registry = ScriptedRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._respond("GET")

        def do_POST(self) -> None:
            self._respond("POST")

        def _respond(self, method: str) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, content = registry.respond(method, self.path, body, self.headers.get("Authorization"))
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        registry.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_address[1]}"
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()
