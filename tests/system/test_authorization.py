"""Who may do what: every API under no right, each right and as a super user, here and on Apache Kafka 4.3.1 (A11).

``BARNABAS_WRITE_DOCS=1 pytest tests/system/test_authorization.py`` writes docs/authorization.md from the responses of
our broker; otherwise the page must be true. With Java, Apache Kafka gets the same requests under the same rights, and
must respond alike.
"""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas import EmbeddedBroker
from barnabas.common.errors import Errors
from barnabas.common.topic_names import CLIENT_TELEMETRY_TOPIC, QUOTA_USAGE_TOPIC, REQUEST_LOG_TOPIC
from barnabas.protocol.api_keys import ApiKey
from barnabas.security.acl import AclOperation, ResourceType
from documents import ROOT
from oracles.authorization import (
    CASES,
    GRANTS,
    NOTHING,
    SUPER_USER,
    Case,
    Grant,
    Responses,
    Right,
    Side,
    responses_under,
    summary,
    versions_of,
)
from oracles.java import OracleUnavailableError
from oracles.kafka_server import KafkaServer, ensure_available, free_ports
from oracles.side_by_side import SILENT, advertised, has_code

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="clients connect from 127.0.0.2 and 127.0.0.3")

PAGE: Final = ROOT / "docs" / "authorization.md"
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SETTINGS: Final = {
    "authorizer.class.name": AUTHORIZER,
    "auto.create.topics.enable": "true",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}
SUPER_USERS: Final = {"super.users": "User:ANONYMOUS"}
NEVER_ANSWERED: Final = "DescribeUserScramCredentials, all users"
"""Apache Kafka 4.3.1 does not respond to a client that may not describe users."""

INTRODUCTION: Final = """# Authorization

What each API responds, depending on the client's rights. [A test](../tests/system/test_authorization.py) sends every
request under no right, under each single right, under some combinations, and as a super user; it writes this page and
fails if the page is no longer true. The same test sends the same requests to Apache Kafka 4.3.1 with its
`StandardAuthorizer`, and compares the responses: error codes of each resource, names that are shown or hidden, and
authorized operations.

In the requests, the rights are on the topics `orders` (exists), `absent` and `fresh` (do not exist) and `victim`, on
the groups `billing`, `old` and `new`, on the transactional ID `pay`, or on the cluster. The client never has a right on
the topics `secret` (exists) and `hidden` (does not), the group `audit` and the transactional ID `other`, except as a
super user or by a right on `*`. A topic id is shown by the topic's name; `stranger` is an id of no topic. *ok* means
error code 0; operations in brackets are the authorized operations of a response. All requests come over one connection,
so each change of rights counts on an open connection.

A right that is not listed for an API changes nothing in its response. *Read*, *Write*, *Delete* and *Alter* imply
*Describe*; *AlterConfigs* implies *DescribeConfigs*. All clients are `User:ANONYMOUS` on PLAINTEXT listeners, which is
why delegation tokens are refused to everybody.

"""


class Node(ABC):
    """One broker that is started twice: with a super user, and without one."""

    def __init__(self) -> None:
        self.port, self.controller_port = free_ports(2)

    @abstractmethod
    def start(self, more: Mapping[str, str]) -> None: ...

    @abstractmethod
    def stop(self) -> None: ...

    @contextmanager
    def running(self, more: Mapping[str, str]) -> Iterator[Side]:
        self.start(more)
        try:
            with Side(self.port, self.controller_port) as side:
                yield side
        finally:
            self.stop()


class Ours(Node):
    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory
        self._broker: EmbeddedBroker | None = None

    def start(self, more: Mapping[str, str]) -> None:
        listeners = f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}"
        voters = f"1@127.0.0.1:{self.controller_port}"
        settings = {
            **SETTINGS,
            **more,
            "listeners": listeners,
            "controller.quorum.voters": voters,
            "barnabas.telemetry.advertise": "always",
        }
        self._broker = EmbeddedBroker(self._directory / "data", port=self.port, overrides=settings).start()

    def stop(self) -> None:
        if self._broker is not None:
            self._broker.stop()


class Apache(Node):
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        settings: dict[str, Any] = {name.replace(".", "_"): value for name, value in SETTINGS.items()}
        self._server = KafkaServer(directory, **settings)
        self.port, self.controller_port = self._server.port, self._server.controller_port
        self._properties = self._server.config_file.read_text()
        self._server.format()

    def start(self, more: Mapping[str, str]) -> None:
        lines = "".join(f"{name}={value}\n" for name, value in more.items())
        self._server.config_file.write_text(self._properties + lines)
        self._server.start()

    def stop(self) -> None:
        self._server.stop()


def collect(node: Node, versions: Mapping[Case, int] | None) -> tuple[Responses, dict[Case, int]]:
    """The responses of a broker to everything; the versions are those of the other broker, or our newest."""
    skipped = _skipped_on_apache if isinstance(node, Apache) else _skipped_nowhere
    with node.running(SUPER_USERS) as side:
        side.restore()
        if versions is None:
            versions = _versions(side)
        found = responses_under(side, [SUPER_USER], versions, skipped)
        side.allow_nodes_and_admin()
    with node.running({}) as side:
        found |= responses_under(side, GRANTS, versions, skipped)
    return found, dict(versions)


def _versions(side: Side) -> dict[Case, int]:
    """The newest versions that Kafka 4.3.1 speaks too; fails if an advertised API has no case."""
    spoken = advertised(side.client), advertised(side.client_of_controller)
    chosen = versions_of(CASES, *map(_of_4_3, spoken))
    served = {(api, on_controller) for on_controller in (False, True) for api in spoken[on_controller]}
    assert {(case.api, case.on_controller) for case in CASES} == served
    return chosen


_NEWER: Final = {ApiKey.API_VERSIONS: 4, ApiKey.DELETE_GROUPS: 2}
"""The newest version of Kafka 4.3.1 where ours is newer."""


def _of_4_3(spoken: Mapping[ApiKey, range]) -> dict[ApiKey, range]:
    return {api: range(versions[0], _NEWER.get(api, versions[-1]) + 1) for api, versions in spoken.items()}


def _skipped_nowhere(_case: Case, _grant: Grant) -> bool:
    return False


def _skipped_on_apache(case: Case, grant: Grant) -> bool:
    return case.title == NEVER_ANSWERED and grant is not SUPER_USER


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> tuple[Responses, dict[Case, int]]:
    return collect(Ours(tmp_path_factory.mktemp("ours")), None)


# -- the page


def page_of(found: Responses) -> str:
    lines = [INTRODUCTION]
    for title, on_controller in (("Broker", False), ("Controller", True)):
        lines.append(f"## {title} listener\n\n| request | rights | response |\n|---|---|---|\n")
        for case in CASES:
            if case.on_controller == on_controller:
                lines += _rows(case, found)
        lines.append("\n")
    return "".join(lines).rstrip("\n") + "\n"


def _rows(case: Case, found: Responses) -> Iterator[str]:
    """The response without rights, those that rights change, and the super user's."""
    without = found[NOTHING][case]
    by_response: dict[str, list[str]] = {}
    singles = {repr(found[grant][case]) for grant in GRANTS if len(grant.rights) == 1}
    for grant in GRANTS:
        response = found[grant][case]
        changed = grant is NOTHING or response != without
        if changed and (len(grant.rights) <= 1 or repr(response) not in singles):
            by_response.setdefault(summary(response), []).append(grant.title)
    everything = summary(found[SUPER_USER][case])
    by_response.setdefault(everything, []).append(SUPER_USER.title)
    name = case.title
    for response, titles in by_response.items():
        yield f"| {name} | {'; '.join(titles)} | {response} |\n"
        name = ""


@pytest.mark.mechanism("A11")
def test_the_page_is_true(ours: tuple[Responses, dict[Case, int]]) -> None:
    page = page_of(ours[0])
    if os.environ.get("BARNABAS_WRITE_DOCS") == "1":
        PAGE.write_text(page, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page, "run this test with BARNABAS_WRITE_DOCS=1"


# -- Apache Kafka


@pytest.mark.java
@pytest.mark.mechanism("A11")
def test_apache_kafka_responds_alike(
    ours: tuple[Responses, dict[Case, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    try:
        ensure_available()
    except OracleUnavailableError as error:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(str(error))
    responses, versions = ours
    apache, _ = collect(Apache(tmp_path_factory.mktemp("apache")), versions)
    differences = [
        f"{case.title} v{versions[case]}{' (controller)' if case.on_controller else ''} under {grant.title}:\n"
        f"    ours    {_text(responses[grant][case])}\n    Apache  {_text(response)}"
        for grant, rows in apache.items()
        for case, response in rows.items()
        if response != responses[grant][case]
    ]
    assert not differences, f"{len(differences)} differences\n" + "\n".join(differences)
    assert not any(response == SILENT for rows in responses.values() for response in rows.values())


def _text(response: Any) -> str:
    return response if isinstance(response, str) else f"{summary(response)}   {response}"


# -- what is ours


def test_the_observability_topics_are_for_those_who_may_read_them(tmp_path: Path) -> None:
    """They tell about all clients, so being a client is not enough to read them."""
    node = Ours(tmp_path)
    reads = [
        Case(ApiKey.FETCH, "", {"topics": [{"topic": name, "partitions": [{"partition": 0}]}]}, 12)
        for name in (CLIENT_TELEMETRY_TOPIC, REQUEST_LOG_TOPIC, QUOTA_USAGE_TOPIC)
    ]
    writes = [
        Case(ApiKey.PRODUCE, "", {"acks": 1, "topic_data": [{"name": name, "partition_data": [{"index": 0}]}]}, 12)
        for name in (CLIENT_TELEMETRY_TOPIC, REQUEST_LOG_TOPIC, QUOTA_USAGE_TOPIC)
    ]
    with node.running(SUPER_USERS) as side:
        side.allow_nodes_and_admin()
    with node.running({}) as side:
        for case in (*reads, *writes):
            assert has_code(side.ask(case, 12), frozenset({Errors.TOPIC_AUTHORIZATION_FAILED})), case
        side.grant(Grant("Read", (Right(ResourceType.TOPIC, AclOperation.READ, (REQUEST_LOG_TOPIC,)),)))
        denied = [has_code(side.ask(case, 12), frozenset({Errors.TOPIC_AUTHORIZATION_FAILED})) for case in reads]
        assert denied == [True, False, True]
