"""The plug-in, its default, what every plug-in gets, and the audit log."""

from __future__ import annotations

import logging

import pytest

from barnabas.common.clock import MockClock
from barnabas.common.errors import Errors, SecurityDisabledError
from barnabas.common.log_safety import LINES, WINDOW_MS
from barnabas.network.server.endpoint import Endpoint
from barnabas.security.acl import AclBindingFilter, AclOperation, ResourcePattern, ResourceType, acl
from barnabas.security.audit_log import AUDIT_LOGGER, TRACE, AuditLog
from barnabas.security.authorizer import (
    ALLOWED,
    Action,
    AllowAllAuthorizer,
    AuthorizerNotReadyError,
    AuthorizerServerInfo,
)
from barnabas.security.client_host import canonical_host
from barnabas.security.standard_authorizer import StandardAuthorizer
from unit.security.contexts import context_of

READ, TOPIC = AclOperation.READ, ResourceType.TOPIC
FOO = ResourcePattern(TOPIC, "foo")


class TestAllowAll:
    def test_it_allows_all(self) -> None:
        authorizer = AllowAllAuthorizer()
        authorizer.configure({})
        assert authorizer.authorize(context_of(), [Action(READ, FOO), Action(READ, FOO)]) == [ALLOWED, ALLOWED]
        assert authorizer.authorize_by_resource_type(context_of(), READ, TOPIC) is ALLOWED
        authorizer.close()

    def test_it_is_ready_at_once(self) -> None:
        endpoints = [Endpoint("A"), Endpoint("B")]
        futures = AllowAllAuthorizer().start(AuthorizerServerInfo("cluster", 1, endpoints))
        assert [(name, future.done()) for name, future in futures.items()] == [("A", True), ("B", True)]

    def test_it_has_no_acls_and_takes_none(self) -> None:
        authorizer = AllowAllAuthorizer()
        assert list(authorizer.acls(AclBindingFilter())) == []
        assert authorizer.acl_count() == 0
        (created,) = authorizer.create_acls(context_of(), [acl("User:alice", READ, TOPIC, "foo")])
        (deleted,) = authorizer.delete_acls(context_of(), [AclBindingFilter()])
        assert isinstance(created.result(0).error, SecurityDisabledError)
        assert isinstance(deleted.result(0).error, SecurityDisabledError)


class TestByResourceType:
    @pytest.mark.parametrize("operation", [AclOperation.ANY, AclOperation.UNKNOWN])
    @pytest.mark.parametrize("authorizer", [AllowAllAuthorizer(), StandardAuthorizer([])])
    def test_operations_of_filters_are_none(
        self, authorizer: AllowAllAuthorizer | StandardAuthorizer, operation: AclOperation
    ) -> None:
        with pytest.raises(ValueError, match="not an operation"):
            authorizer.authorize_by_resource_type(context_of(), operation, TOPIC)

    @pytest.mark.parametrize("resource_type", [ResourceType.ANY, ResourceType.UNKNOWN])
    def test_types_of_filters_are_none(self, resource_type: ResourceType) -> None:
        with pytest.raises(ValueError, match="not the type of a resource"):
            StandardAuthorizer([]).authorize_by_resource_type(context_of(), READ, resource_type)


class TestAuditLog:
    def entries(self, caplog: pytest.LogCaptureFixture, allowed: bool, action: Action) -> list[tuple[int, str]]:
        caplog.clear()
        with caplog.at_level(TRACE, AUDIT_LOGGER):
            AuditLog().record(context_of(), action, allowed, "by {}".format, "X")
        return [(record.levelno, record.getMessage()) for record in caplog.records]

    def test_what_is_written(self, caplog: pytest.LogCaptureFixture) -> None:
        assert self.entries(caplog, False, Action(READ, FOO, 3)) == [
            (
                logging.INFO,
                "User:alice at 192.0.2.7 DENIED Read on Topic:LITERAL:foo in Fetch, referred to 3 times; rule: by X",
            )
        ]

    @pytest.mark.parametrize(
        ("allowed", "log_if_allowed", "log_if_denied", "level"),
        [
            (True, True, False, logging.DEBUG),
            (True, False, True, TRACE),
            (False, False, True, logging.INFO),
            (False, True, False, TRACE),
        ],
    )
    def test_levels(
        self, caplog: pytest.LogCaptureFixture, allowed: bool, log_if_allowed: bool, log_if_denied: bool, level: int
    ) -> None:
        action = Action(READ, FOO, 1, log_if_allowed, log_if_denied)
        ((written, _),) = self.entries(caplog, allowed, action)
        assert written == level

    def test_nobody_is_asked_for_reasons_that_nobody_reads(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.INFO, AUDIT_LOGGER):
            AuditLog().record(context_of(), Action(READ, FOO), True, pytest.fail, "asked")
        assert caplog.records == []

    @pytest.mark.mechanism("A11")
    def test_denials_of_one_client_are_limited(self, caplog: pytest.LogCaptureFixture) -> None:
        clock = MockClock()
        audit = AuditLog(clock=clock)
        with caplog.at_level(logging.DEBUG, AUDIT_LOGGER):
            for number in range(100):
                action = Action(READ, ResourcePattern(TOPIC, f"topic-{number}"))
                audit.record(context_of(), action, False, str, "no ACL matches")
            assert len(caplog.records) == LINES
            audit.record(context_of(host="192.0.2.8"), Action(READ, FOO), False, str, "")
            audit.record(context_of("User:bob"), Action(READ, FOO), False, str, "")
            assert len(caplog.records) == LINES + 2, "others are heard"
            for _ in range(100):
                audit.record(context_of(), Action(READ, FOO), True, str, "")
            assert len(caplog.records) == LINES + 102, "permissions are complete"
            caplog.clear()
            clock.advance(WINDOW_MS)
            audit.record(context_of(), Action(READ, FOO), False, str, "X")
        assert [record.getMessage() for record in caplog.records] == [
            "... 80 similar lines suppressed in the last 10 s: requests of User:alice at 192.0.2.7",
            "User:alice at 192.0.2.7 DENIED Read on Topic:LITERAL:foo in Fetch, referred to 1 times; rule: X",
        ]

    @pytest.mark.mechanism("R04")
    def test_an_authorizer_says_by_which_rule(self, caplog: pytest.LogCaptureFixture) -> None:
        authorizer = StandardAuthorizer([acl("User:alice", READ, TOPIC, "foo")])
        authorizer.configure({"super.users": "User:root"})
        with caplog.at_level(logging.DEBUG, AUDIT_LOGGER):
            authorizer.authorize(context_of(), [Action(READ, FOO, 12), Action(AclOperation.WRITE, FOO)])
            authorizer.authorize(context_of("User:root"), [Action(READ, FOO)])
        rules = [
            record.getMessage().partition("referred to ")[2] for record in caplog.records if record.name == AUDIT_LOGGER
        ]
        assert rules == [
            "12 times; rule: ALLOW Read to User:alice from * on Topic:LITERAL:foo",
            "1 times; rule: no ACL matches",
            "1 times; rule: super user",
        ]


def test_not_ready_may_pass() -> None:
    assert AuthorizerNotReadyError.retriable
    assert Errors.for_exception(AuthorizerNotReadyError()) is Errors.UNKNOWN_SERVER_ERROR


def test_hosts_are_compared_as_addresses() -> None:
    assert canonical_host("0:0:0:0:0:0:0:1") == canonical_host("::1") == "::1"
    assert canonical_host("::ffff:192.0.2.7") == "192.0.2.7"
    assert canonical_host("*") == "*"
    assert canonical_host("host.example") == "host.example"
    assert canonical_host("no:address") == "no:address"
