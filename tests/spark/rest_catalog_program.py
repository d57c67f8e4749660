"""A REST catalog of Iceberg tables as a process, which can kill itself (SIGKILL) in the middle of a commit.

    python rest_catalog_program.py DIRECTORY PORT [NUMBER POINT]

What it knows is an SQLite file in the directory, so that it goes on after a restart. It has what pyiceberg needs to
create, load and change tables. With NUMBER and POINT it dies in the commit of that number which adds a snapshot:
``before`` it is done, or ``after`` it is done and before the client hears of it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
)
from pyiceberg.table import CommitTableRequest

BEFORE: Final = "before"
AFTER: Final = "after"
POINTS: Final = (BEFORE, AFTER)
READY: Final = "ready"


class NamedTable:
    """All that a commit asks of a table is its name: it may not exist yet."""

    def __init__(self, name: tuple[str, ...]) -> None:
        self._name = name

    def name(self) -> tuple[str, ...]:
        return self._name


class RestCatalog:
    """The catalog, and when it is to die."""

    def __init__(self, directory: Path, number: int, point: str) -> None:
        place = f"sqlite:///{directory}/rest.db"
        self._catalog = SqlCatalog("rest", uri=place, warehouse=f"file://{directory}/warehouse")
        self._left = number
        self._point = point

    def respond(self, method: str, parts: list[str], body: bytes) -> dict[str, Any]:
        """Returns the document for a request; ``parts`` are those of the path after the version."""
        match method, parts:
            case "GET", ["config"]:
                return {"defaults": {}, "overrides": {}}
            case "POST", ["namespaces"]:
                namespace = tuple(json.loads(body)["namespace"])
                self._catalog.create_namespace(namespace)
                return {"namespace": namespace, "properties": {}}
            case "GET" | "HEAD", ["namespaces", namespace]:
                return {
                    "namespace": [namespace],
                    "properties": dict(self._catalog.load_namespace_properties(namespace)),
                }
            case "POST", ["namespaces", namespace, "tables"]:
                return self._create(namespace, CreateTableRequest.model_validate_json(body))
            case "GET" | "HEAD", ["namespaces", namespace, "tables", table]:
                found = self._catalog.load_table((namespace, table))
                return table_document(found.metadata, found.metadata_location)
            case "POST", ["namespaces", namespace, "tables", table]:
                return self._commit((namespace, table), CommitTableRequest.model_validate_json(body))
        raise NotImplementedError(f"{method} {'/'.join(parts)}")

    def _create(self, namespace: str, asked: CreateTableRequest) -> dict[str, Any]:
        if not asked.stage_create:
            raise NotImplementedError("only staged tables are created")
        staged = self._catalog.create_table_transaction(
            (namespace, asked.name), asked.table_schema, location=asked.location, properties=asked.properties
        )
        return table_document(staged.table_metadata, None)

    def _commit(self, name: tuple[str, str], asked: CommitTableRequest) -> dict[str, Any]:
        is_snapshot = any(update.action == "add-snapshot" for update in asked.updates)
        self._left -= is_snapshot
        is_last = is_snapshot and self._left == 0
        if is_last and self._point == BEFORE:
            os.kill(os.getpid(), signal.SIGKILL)
        done = self._catalog.commit_table(NamedTable(name), asked.requirements, asked.updates)  # type: ignore[arg-type]
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)
        return table_document(done.metadata, done.metadata_location)


def table_document(metadata: Any, location: str | None) -> dict[str, Any]:
    document: dict[str, Any] = {"metadata": json.loads(metadata.model_dump_json()), "config": {}}
    return document if location is None else {**document, "metadata-location": location}


STATUS: Final = {
    NoSuchNamespaceError: 404,
    NoSuchTableError: 404,
    NamespaceAlreadyExistsError: 409,
    CommitFailedException: 409,
    NotImplementedError: 501,
}


def make_handler(catalog: RestCatalog) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_request(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = [unquote(part) for part in self.path.partition("?")[0].strip("/").split("/")[1:]]
            try:
                status, document = 200, catalog.respond(self.command, parts, body)
            except tuple(STATUS) as error:
                status = STATUS[type(error)]
                document = {"error": {"message": str(error), "type": type(error).__name__, "code": status}}
            data = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        do_GET = do_HEAD = do_POST = handle_request  # noqa: N815 - the names that the server looks for

        def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the server's name
            """Says nothing: the pipe is for the word that it is ready."""

    return Handler


def main(directory: str, port: str, number: str = "0", point: str = "") -> None:
    Path(directory, "warehouse").mkdir(parents=True, exist_ok=True)
    catalog = RestCatalog(Path(directory), int(number), point)
    with ThreadingHTTPServer(("127.0.0.1", int(port)), make_handler(catalog)) as server:
        print(READY, server.server_address[1], flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
