"""Decisions by ACLs, and where the ACLs come from."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.common.errors import (
    InvalidConfigurationError,
    InvalidRequestError,
    KafkaTimeoutError,
    NotControllerError,
    UnknownServerError,
)
from barnabas.common.identifiers import Uuid
from barnabas.network.server.endpoint import Endpoint
from barnabas.security.acl import (
    CLUSTER_NAME,
    AccessControlEntryFilter,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    acl,
)
from barnabas.security.acl_index import AclIndex
from barnabas.security.authorizer import (
    ALLOWED,
    AclCreateResult,
    AclDeleteResult,
    Action,
    Authorizer,
    AuthorizerNotReadyError,
    AuthorizerServerInfo,
    done,
)
from barnabas.security.principal import KafkaPrincipal
from barnabas.security.request_context import AuthorizableRequestContext
from barnabas.security.standard_authorizer import StandardAuthorizer
from unit.security.contexts import context_of
from unit.security.naive_authorizer import Question, bindings, naive, questions

pytestmark = pytest.mark.mechanism("R04")

READ, WRITE, DESCRIBE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALL
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY


def ask(
    authorizer: Authorizer,
    name: str = "foo",
    operation: AclOperation = READ,
    principal: str = "User:alice",
    host: str = "192.0.2.7",
    resource_type: ResourceType = TOPIC,
) -> bool:
    action = Action(operation, ResourcePattern(resource_type, name))
    return authorizer.authorize(context_of(principal, host), [action]) == [ALLOWED]


def with_acls(*acls: AclBinding, **configs: Any) -> StandardAuthorizer:
    authorizer = StandardAuthorizer(acls)
    authorizer.configure({key.replace("_", "."): value for key, value in configs.items()})
    return authorizer


def acl_id(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


class TestRules:
    def test_without_acls_nothing_is_allowed_unless_so_configured(self) -> None:
        assert not ask(with_acls())
        assert ask(with_acls(allow_everyone_if_no_acl_found="true"))

    def test_what_an_acl_allows(self) -> None:
        authorizer = with_acls(acl("User:alice", READ, TOPIC, "foo", host="192.0.2.7"))
        assert ask(authorizer)
        assert not ask(authorizer, "fooo")
        assert not ask(authorizer, operation=WRITE)
        assert not ask(authorizer, principal="User:bob")
        assert not ask(authorizer, principal="Group:alice")
        assert not ask(authorizer, host="192.0.2.8")
        assert not ask(authorizer, resource_type=GROUP)

    def test_everybody_everywhere_everything(self) -> None:
        authorizer = with_acls(acl("User:*", ALL, TOPIC, "*"))
        assert ask(authorizer, "anything", WRITE, "User:whoever", "::1")
        assert ask(authorizer, "anything", WRITE, "Group:whoever")
        assert not ask(authorizer, "anything", resource_type=GROUP)

    def test_prefixes(self) -> None:
        authorizer = with_acls(acl("User:alice", READ, TOPIC, "foo", PREFIXED))
        assert ask(authorizer, "foo")
        assert ask(authorizer, "foobar")
        assert not ask(authorizer, "fo")
        assert not ask(authorizer, "barfoo")

    def test_a_prefix_of_a_star_is_no_wildcard(self) -> None:
        authorizer = with_acls(acl("User:alice", READ, TOPIC, "*", PREFIXED))
        assert not ask(authorizer, "foo")
        assert ask(authorizer, "*foo")

    @pytest.mark.parametrize(
        "denying",
        [
            acl("User:alice", READ, TOPIC, "foo.bar", LITERAL, DENY),
            acl("User:alice", READ, TOPIC, "foo", PREFIXED, DENY),
            acl("User:alice", READ, TOPIC, "*", LITERAL, DENY),
            acl("User:*", READ, TOPIC, "*", LITERAL, DENY),
            acl("User:*", ALL, TOPIC, "f", PREFIXED, DENY, "192.0.2.7"),
        ],
    )
    def test_deny_wins_however_general(self, denying: AclBinding) -> None:
        allowing = [acl("User:alice", READ, TOPIC, "foo.bar", host="192.0.2.7"), acl("User:alice", ALL, TOPIC, "*")]
        assert ask(with_acls(*allowing), "foo.bar")
        assert not ask(with_acls(*allowing, denying), "foo.bar")
        assert not ask(with_acls(denying, *allowing), "foo.bar")

    @pytest.mark.parametrize("operation", [READ, WRITE, AclOperation.DELETE, AclOperation.ALTER, ALL, DESCRIBE])
    def test_who_may_act_may_look(self, operation: AclOperation) -> None:
        assert ask(with_acls(acl("User:alice", operation, TOPIC, "foo")), operation=DESCRIBE)

    @pytest.mark.parametrize(
        "operation", [AclOperation.CREATE, AclOperation.ALTER_CONFIGS, AclOperation.CLUSTER_ACTION]
    )
    def test_not_everything_is_looking(self, operation: AclOperation) -> None:
        assert not ask(with_acls(acl("User:alice", operation, TOPIC, "foo")), operation=DESCRIBE)

    def test_who_may_alter_configs_may_look_at_them(self) -> None:
        authorizer = with_acls(acl("User:alice", AclOperation.ALTER_CONFIGS, TOPIC, "foo"))
        assert ask(authorizer, operation=AclOperation.DESCRIBE_CONFIGS)
        assert not ask(with_acls(acl("User:alice", READ, TOPIC, "foo")), operation=AclOperation.DESCRIBE_CONFIGS)

    def test_who_may_not_act_may_look(self) -> None:
        authorizer = with_acls(
            acl("User:alice", READ, TOPIC, "foo", LITERAL, DENY), acl("User:alice", DESCRIBE, TOPIC, "foo")
        )
        assert not ask(authorizer)
        assert ask(authorizer, operation=DESCRIBE)

    def test_an_acl_for_another_ends_the_default(self) -> None:
        for pattern in (("foo", LITERAL), ("f", PREFIXED), ("*", LITERAL)):
            authorizer = with_acls(acl("User:bob", WRITE, TOPIC, *pattern), allow_everyone_if_no_acl_found=True)
            assert not ask(authorizer)
            assert ask(authorizer, resource_type=GROUP)
        assert ask(
            with_acls(
                acl("User:bob", WRITE, TOPIC, "fooo"),
                acl("User:bob", WRITE, TOPIC, "fooo", PREFIXED),
                allow_everyone_if_no_acl_found=True,
            )
        )

    def test_the_cluster_has_rights_of_its_own(self) -> None:
        authorizer = with_acls(
            acl("User:alice", ALL, CLUSTER, CLUSTER_NAME),
            acl("User:bob", ALL, TOPIC, "*"),
            acl("User:bob", ALL, GROUP, "*"),
        )
        action = AclOperation.CLUSTER_ACTION
        assert ask(authorizer, CLUSTER_NAME, action, resource_type=CLUSTER)
        assert not ask(authorizer, CLUSTER_NAME, action, "User:bob", resource_type=CLUSTER)
        assert not ask(authorizer, "foo", READ)

    def test_super_users_are_above_denial(self) -> None:
        authorizer = with_acls(
            acl("User:*", ALL, TOPIC, "*", LITERAL, DENY), super_users=" User:root ;; User:CN=a,O=b;Group:ops "
        )
        assert ask(authorizer, principal="User:root")
        assert ask(authorizer, principal="User:CN=a,O=b")
        assert ask(authorizer, principal="Group:ops")
        assert not ask(authorizer, principal="User:ops")
        assert authorizer.authorize_by_resource_type(context_of("User:root"), READ, TOPIC) is ALLOWED

    def test_a_special_principal_is_judged_by_type_and_name(self) -> None:
        class WithRoles(KafkaPrincipal):
            pass

        authorizer = with_acls(acl("User:alice", READ, TOPIC, "foo"), super_users="User:root")
        context = context_of()
        actions = [Action(READ, ResourcePattern(TOPIC, "foo"))]
        context.principal = WithRoles("User", "alice")
        assert authorizer.authorize(context, actions) == [ALLOWED]
        context.principal = WithRoles("User", "root")
        assert authorizer.authorize(context, actions) == [ALLOWED]

    def test_ipv6_is_one_host_however_written(self) -> None:
        authorizer = with_acls(
            acl("User:alice", READ, TOPIC, "foo", host="2001:db8:0:0:0:0:0:1"),
            acl("User:alice", READ, TOPIC, "foo", host="192.0.2.9"),
        )
        assert ask(authorizer, host="2001:db8::1")
        assert ask(authorizer, host="::ffff:192.0.2.9")
        assert not ask(authorizer, host="2001:db8::2")

    def test_a_pattern_is_no_resource(self) -> None:
        with pytest.raises(ValueError, match="literal resource"):
            with_acls().authorize(context_of(), [Action(READ, ResourcePattern(TOPIC, "foo", PREFIXED))])

    def test_what_a_newer_version_wrote_allows_nothing(self) -> None:
        unknown = PatternType.UNKNOWN
        authorizer = StandardAuthorizer()
        authorizer.load_snapshot(
            {
                acl_id(1): acl("User:alice", READ, TOPIC, "foo", unknown),
                acl_id(2): acl("User:alice", READ, TOPIC, "bar", LITERAL, AclPermissionType.UNKNOWN),
                acl_id(3): acl("User:alice", READ, TOPIC, "bar"),
                acl_id(4): acl("nobody", READ, TOPIC, "bar"),
                acl_id(5): acl("User:alice", READ, TOPIC, "zar"),
            }
        )
        authorizer.complete_initial_load()
        assert not ask(authorizer, "foo")
        assert not ask(authorizer, "bar"), "what is neither is taken to deny"
        assert ask(authorizer, "zar")
        assert authorizer.acl_count() == 5

    def test_many_requests_get_a_response_in_order(self) -> None:
        authorizer = with_acls(acl("User:alice", READ, TOPIC, "b", PREFIXED))
        names = ["a", "b", "bc", "c"]
        actions = [Action(READ, ResourcePattern(TOPIC, name)) for name in names]
        results = authorizer.authorize(context_of(), actions)
        assert [result is ALLOWED for result in results] == [False, True, True, False]

    @given(st.lists(bindings, max_size=25), st.booleans(), st.lists(questions, min_size=1, max_size=30))
    def test_it_decides_as_the_rules_do(self, acls: list[AclBinding], default: bool, asked: list[Question]) -> None:
        authorizer = with_acls(*acls, allow_everyone_if_no_acl_found=default)
        for principal, host, operation, resource_type, name in asked:
            expected = naive(acls, default, principal, host, operation, resource_type, name)
            assert ask(authorizer, name, operation, principal, host, resource_type) is expected

    @given(
        st.lists(bindings, max_size=12),
        st.lists(st.lists(st.tuples(st.integers(0, 12), st.none() | bindings), max_size=5), max_size=6),
        st.lists(questions, min_size=1, max_size=10),
    )
    def test_changes_come_to_the_same_as_a_new_set(
        self,
        first: list[AclBinding],
        changes: list[list[tuple[int, AclBinding | None]]],
        asked: list[Question],
    ) -> None:
        acls = {acl_id(number): binding for number, binding in enumerate(first)}
        index = AclIndex(acls)
        for batch in changes:
            before = (index, dict(acls))
            applied = []
            for number, binding in batch:
                if binding is not None:
                    acls[acl_id(number)] = binding
                elif acls.pop(acl_id(number), None) is None:
                    continue
                applied.append((acl_id(number), binding))
            index = index.with_changes(applied)
            for known, content in (before, (index, acls)):
                assert dict(known.items()) == content
                fresh = AclIndex(content)
                for principal, host, operation, resource_type, name in asked:
                    who = KafkaPrincipal.parse(principal)
                    assert known.decide(who, host, operation, resource_type, name) is fresh.decide(
                        who, host, operation, resource_type, name
                    )
                    assert known.has_acls(resource_type, name) is fresh.has_acls(resource_type, name)
            for binding in list(acls.values()) + first:
                assert (binding in index) is (binding in acls.values())

    @given(st.lists(bindings, max_size=15), st.booleans(), st.lists(questions, min_size=1, max_size=10))
    def test_any_resource_of_a_type_is_found_as_every_plug_in_would(
        self, acls: list[AclBinding], default: bool, asked: list[Question]
    ) -> None:
        authorizer = with_acls(*acls, allow_everyone_if_no_acl_found=default)
        for principal, host, operation, resource_type, _ in asked:
            context = context_of(principal, host)
            expected = Authorizer.authorize_by_resource_type(authorizer, context, operation, resource_type)
            assert authorizer.authorize_by_resource_type(context, operation, resource_type) is expected


class TestAnyResourceOfAType:
    @pytest.mark.parametrize(
        ("acls", "allowed"),
        [
            ([], False),
            ([acl("User:alice", WRITE, TOPIC, "foo")], True),
            ([acl("User:alice", WRITE, TOPIC, "foo", PREFIXED)], True),
            ([acl("User:alice", WRITE, TOPIC, "*")], True),
            ([acl("User:alice", ALL, TOPIC, "foo")], True),
            ([acl("User:*", WRITE, TOPIC, "foo")], True),
            ([acl("User:alice", READ, TOPIC, "foo")], False),
            ([acl("User:alice", WRITE, GROUP, "foo")], False),
            ([acl("User:alice", WRITE, TOPIC, "foo", host="192.0.2.8")], False),
            ([acl("User:alice", WRITE, TOPIC, "foo"), acl("User:alice", WRITE, TOPIC, "foo", LITERAL, DENY)], False),
            ([acl("User:alice", WRITE, TOPIC, "foo"), acl("User:*", ALL, TOPIC, "fo", PREFIXED, DENY)], False),
            ([acl("User:alice", WRITE, TOPIC, "foo"), acl("User:*", ALL, TOPIC, "fooo", PREFIXED, DENY)], True),
            (
                [
                    acl("User:alice", WRITE, TOPIC, "foo", PREFIXED),
                    acl("User:alice", WRITE, TOPIC, "foo", LITERAL, DENY),
                ],
                True,
            ),
            (
                [acl("User:alice", WRITE, TOPIC, "foo", PREFIXED), acl("User:*", WRITE, TOPIC, "foo", PREFIXED, DENY)],
                False,
            ),
            ([acl("User:alice", WRITE, TOPIC, "*"), acl("User:alice", WRITE, TOPIC, "f", PREFIXED, DENY)], True),
            ([acl("User:alice", WRITE, TOPIC, "foo"), acl("User:alice", WRITE, TOPIC, "*", LITERAL, DENY)], False),
        ],
    )
    def test_what_is_left(self, acls: list[AclBinding], allowed: bool) -> None:
        authorizer = with_acls(*acls)
        assert (authorizer.authorize_by_resource_type(context_of(), WRITE, TOPIC) is ALLOWED) is allowed

    def test_the_default_is_something(self) -> None:
        authorizer = with_acls(allow_everyone_if_no_acl_found=True)
        assert authorizer.authorize_by_resource_type(context_of(), WRITE, TOPIC) is ALLOWED


class TestLoading:
    def start(self, authorizer: StandardAuthorizer, early: Sequence[str] = ()) -> dict[str, bool]:
        info = AuthorizerServerInfo("cluster", 1, [Endpoint("A"), Endpoint("C")], early_start_listeners=early)
        return {name: future.done() for name, future in authorizer.start(info).items()}

    def test_listeners_wait_for_the_acls(self) -> None:
        authorizer = StandardAuthorizer()
        assert self.start(authorizer) == {"A": False, "C": False}
        assert self.start(authorizer, ["C"]) == {"A": False, "C": True}
        authorizer.load_snapshot({acl_id(1): acl("User:alice", READ, TOPIC, "foo")})
        assert self.start(authorizer) == {"A": False, "C": False}
        authorizer.complete_initial_load()
        assert self.start(authorizer) == {"A": True, "C": True}
        assert ask(authorizer)

    def test_until_then_only_super_users_get_a_response(self) -> None:
        authorizer = StandardAuthorizer()
        authorizer.configure({"super.users": "User:root", "allow.everyone.if.no.acl.found": True})
        assert ask(authorizer, principal="User:root")
        with pytest.raises(AuthorizerNotReadyError):
            ask(authorizer)

    def test_a_failed_load_fails_the_listeners(self) -> None:
        authorizer = StandardAuthorizer()
        futures = authorizer.start(AuthorizerServerInfo("cluster", 1, [Endpoint("A")]))
        authorizer.complete_initial_load(ValueError("broken"))
        with pytest.raises(ValueError, match="broken"):
            futures["A"].result(0)
        authorizer.complete_initial_load(ValueError("again"))
        with pytest.raises(AuthorizerNotReadyError):
            ask(authorizer)

    def test_closing_ends_the_wait(self) -> None:
        authorizer = StandardAuthorizer()
        futures = authorizer.start(AuthorizerServerInfo("cluster", 1, [Endpoint("A")]))
        authorizer.close()
        with pytest.raises(KafkaTimeoutError, match="closed before"):
            futures["A"].result(0)
        authorizer.close()

    def test_a_snapshot_replaces_everything(self) -> None:
        authorizer = with_acls(acl("User:alice", READ, TOPIC, "foo"))
        authorizer.load_snapshot({acl_id(1): acl("User:alice", READ, TOPIC, "bar")})
        assert not ask(authorizer)
        assert ask(authorizer, "bar")

    def test_one_by_one(self) -> None:
        authorizer = with_acls()
        authorizer.add_acl(acl_id(1), acl("User:alice", READ, TOPIC, "foo"))
        authorizer.add_acl(acl_id(2), acl("User:alice", READ, TOPIC, "foo"))
        authorizer.add_acl(acl_id(3), acl("User:alice", WRITE, TOPIC, "foo"))
        authorizer.remove_acl(acl_id(1))
        assert ask(authorizer), "there is another with the same content"
        authorizer.remove_acl(acl_id(2))
        assert not ask(authorizer)
        assert ask(authorizer, operation=WRITE)
        assert authorizer.acl_count() == 1
        with pytest.raises(ValueError, match="no ACL has the ID"):
            authorizer.remove_acl(acl_id(2))

    def test_the_same_acl_twice_is_one(self) -> None:
        twice = acl("User:alice", READ, TOPIC, "foo")
        assert with_acls(twice, twice).acl_count() == 1

    def test_an_id_in_use_is_given_to_another(self) -> None:
        authorizer = with_acls()
        authorizer.add_acl(acl_id(1), acl("User:alice", READ, TOPIC, "foo"))
        authorizer.add_acl(acl_id(1), acl("User:alice", READ, TOPIC, "bar"))
        assert (ask(authorizer, "foo"), ask(authorizer, "bar"), authorizer.acl_count()) == (False, True, 1)

    def test_a_set_of_changes_is_seen_whole(self) -> None:
        """A denial and a permission that come together: no thread may see the second without the first."""
        authorizer = with_acls()
        allow = acl("User:alice", READ, TOPIC, "*")
        deny = acl("User:alice", READ, TOPIC, "foo", LITERAL, DENY)
        stop = threading.Event()
        seen: list[bool] = []

        def reader() -> None:
            while not stop.is_set():
                if ask(authorizer):
                    seen.append(True)

        threads = [threading.Thread(target=reader) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(200):
            authorizer.apply_changes([(acl_id(1), deny), (acl_id(2), allow)])
            authorizer.apply_changes([(acl_id(1), None), (acl_id(2), None)])
        stop.set()
        for thread in threads:
            thread.join(60)
        assert seen == []


class TestConfiguration:
    def test_super_users(self) -> None:
        assert with_acls(super_users="User:a;User:b").super_users == {
            KafkaPrincipal("User", "a"),
            KafkaPrincipal("User", "b"),
        }
        assert with_acls(super_users="").super_users == set()

    @pytest.mark.parametrize(
        ("key", "value"), [("super.users", "alice"), ("allow.everyone.if.no.acl.found", "perhaps")]
    )
    def test_mistakes_name_the_setting(self, key: str, value: str) -> None:
        with pytest.raises(InvalidConfigurationError, match=f"{key}={value}"):
            StandardAuthorizer().configure({key: value})


class TestChanges:
    def test_create_and_delete(self) -> None:
        authorizer = with_acls()
        reading, writing = acl("User:alice", READ, TOPIC, "foo"), acl("User:alice", WRITE, TOPIC, "foo")
        created = authorizer.create_acls(context_of(), [reading, writing, reading])
        assert [future.result(0) for future in created] == [AclCreateResult()] * 3
        assert authorizer.acl_count() == 2
        (again,) = authorizer.create_acls(context_of(), [reading])
        assert again.result(0).error is None
        assert authorizer.acl_count() == 2
        assert set(authorizer.acls(AclBindingFilter())) == {reading, writing}
        assert authorizer.acls(AclBindingFilter(ResourcePatternFilter(GROUP))) == []

        by_topic, exact = AclBindingFilter(ResourcePatternFilter(TOPIC)), reading.to_filter()
        first, second = authorizer.delete_acls(context_of(), [by_topic, exact])
        assert {result.binding for result in first.result(0).deleted} == {reading, writing}
        assert [result.binding for result in second.result(0).deleted] == [reading], "each filter by itself"
        assert authorizer.acl_count() == 0
        (nothing,) = authorizer.delete_acls(context_of(), [by_topic])
        assert nothing.result(0) == AclDeleteResult([])

    @pytest.mark.parametrize(
        "wrong",
        [
            acl("User:alice", READ, ResourceType.ANY, "foo"),
            acl("User:alice", READ, ResourceType.UNKNOWN, "foo"),
            acl("User:alice", READ, TOPIC, "foo", PatternType.MATCH),
            acl("User:alice", READ, TOPIC, "foo", PatternType.ANY),
            acl("User:alice", AclOperation.ANY, TOPIC, "foo"),
            acl("User:alice", READ, TOPIC, "foo", LITERAL, AclPermissionType.ANY),
            acl("User:alice", READ, TOPIC, ""),
            acl("User:alice", ALL, CLUSTER, "my-cluster"),
            acl("alice", READ, TOPIC, "foo"),
        ],
    )
    def test_what_cannot_be_an_acl_is_refused_and_the_rest_is_not(self, wrong: AclBinding) -> None:
        authorizer = with_acls()
        right = acl("User:alice", READ, TOPIC, "foo")
        first, second = authorizer.create_acls(context_of(), [wrong, right])
        assert isinstance(first.result(0).error, InvalidRequestError)
        assert second.result(0).error is None
        assert authorizer.acls(AclBindingFilter()) == [right]

    def test_a_filter_that_is_not_understood_deletes_nothing(self) -> None:
        authorizer = with_acls(acl("User:alice", READ, TOPIC, "foo"))
        strange = AclBindingFilter(entry_filter=AccessControlEntryFilter(operation=AclOperation.UNKNOWN))
        (result,) = authorizer.delete_acls(context_of(), [strange])
        assert isinstance(result.result(0).error, InvalidRequestError)
        assert authorizer.acl_count() == 1

    def test_only_the_controller_changes_acls(self) -> None:
        for authorizer in (StandardAuthorizer(), with_acls()):
            authorizer.set_acl_mutator(None)
            with pytest.raises(NotControllerError):
                authorizer.create_acls(context_of(), [])
            with pytest.raises(NotControllerError):
                authorizer.delete_acls(context_of(), [])

    def test_a_mutator_responds_when_it_can(self) -> None:
        mutator = Mutator()
        authorizer = with_acls()
        authorizer.set_acl_mutator(mutator)
        binding = acl("User:alice", READ, TOPIC, "foo")
        futures = authorizer.create_acls(context_of(), [binding, binding])
        assert not any(future.done() for future in futures)
        futures[0].cancel()
        mutator.creating.set_result([AclCreateResult(), AclCreateResult(InvalidRequestError("no"))])
        assert isinstance(futures[1].result(0).error, InvalidRequestError)

    @pytest.mark.parametrize(
        ("failure", "kind"),
        [(NotControllerError("moved"), NotControllerError), (OSError("disk"), UnknownServerError)],
    )
    def test_if_it_fails_every_change_has(self, failure: Exception, kind: type[Exception]) -> None:
        mutator = Mutator()
        authorizer = with_acls()
        authorizer.set_acl_mutator(mutator)
        futures = authorizer.delete_acls(context_of(), [AclBindingFilter()] * 2)
        mutator.deleting.set_exception(failure)
        assert [type(future.result(0).error) for future in futures] == [kind, kind]

    def test_results_that_do_not_add_up(self) -> None:
        mutator = Mutator()
        authorizer = with_acls()
        authorizer.set_acl_mutator(mutator)
        futures = authorizer.delete_acls(context_of(), [AclBindingFilter()] * 2)
        mutator.deleting.set_result([AclDeleteResult()])
        assert [type(future.result(0).error) for future in futures] == [UnknownServerError] * 2

    def test_a_result_that_will_not_come(self) -> None:
        mutator = Mutator()
        authorizer = with_acls()
        authorizer.set_acl_mutator(mutator)
        (future,) = authorizer.delete_acls(context_of(), [AclBindingFilter()])
        mutator.deleting.cancel()
        assert isinstance(future.result(0).error, UnknownServerError)


class Mutator:
    """A controller that takes its time."""

    def __init__(self) -> None:
        self.creating: Future[list[AclCreateResult]] = Future()
        self.deleting: Future[list[AclDeleteResult]] = Future()

    def create_acls(
        self, context: AuthorizableRequestContext, acls: Sequence[AclBinding]
    ) -> Future[list[AclCreateResult]]:
        return self.creating

    def delete_acls(
        self, context: AuthorizableRequestContext, filters: Sequence[AclBindingFilter]
    ) -> Future[list[AclDeleteResult]]:
        return self.deleting


def test_the_number_of_acls_does_not_matter_to_a_decision() -> None:
    """Ten thousand ACLs, and the work for one question counted in look-ups, not in time."""
    acls = {acl_id(n): acl(f"User:u{n % 100}", READ, TOPIC, f"team{n}.", PREFIXED) for n in range(10_000)}
    index = AclIndex(acls)
    looked_up = 0

    class Counted(dict[str, Any]):
        def get(self, key: str, default: Any = None, /) -> Any:
            nonlocal looked_up
            looked_up += 1
            return super().get(key, default)

    for principal_acls in index._by_principal.values():
        principal_acls.literal = Counted(principal_acls.literal)
        principal_acls.prefixed = Counted(principal_acls.prefixed)
    verdict = index.decide(KafkaPrincipal("User", "u42"), "192.0.2.7", READ, TOPIC, "team4242.orders")
    assert verdict.name == "ALLOWED"
    assert looked_up < 10


def test_done_is_done() -> None:
    assert done(5).result(0) == 5
    assert repr(with_acls()) == "StandardAuthorizer(0 ACLs)"
