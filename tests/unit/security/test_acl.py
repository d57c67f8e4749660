"""ACLs and the filters that select them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.common.errors import Errors
from barnabas.security.acl import (
    AUTHORIZATION_ERRORS,
    SUPPORTED_OPERATIONS,
    AccessControlEntryFilter,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    acl,
    from_bit_field,
    to_bit_field,
)

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED


class TestCodes:
    def test_numbers_from_the_future_are_unknown(self) -> None:
        assert AclOperation.from_code(99) is AclOperation.UNKNOWN
        assert AclPermissionType.from_code(-1) is AclPermissionType.UNKNOWN
        assert ResourceType.from_code(2) is ResourceType.TOPIC
        assert PatternType.from_code(4) is PatternType.PREFIXED

    @pytest.mark.parametrize("text", ["DESCRIBE_CONFIGS", "DescribeConfigs", "describe_configs", "DESCRIBECONFIGS"])
    def test_names_are_read_in_any_case(self, text: str) -> None:
        assert AclOperation.from_string(text) is AclOperation.DESCRIBE_CONFIGS

    def test_other_names_are_unknown(self) -> None:
        assert AclOperation.from_string("Dance") is AclOperation.UNKNOWN

    def test_titles(self) -> None:
        assert AclOperation.DESCRIBE_CONFIGS.title == "DescribeConfigs"
        assert ResourceType.TRANSACTIONAL_ID.title == "TransactionalId"

    def test_every_type_that_a_resource_can_have_is_complete(self) -> None:
        concrete = set(ResourceType) - {ResourceType.UNKNOWN, ResourceType.ANY}
        assert set(SUPPORTED_OPERATIONS) == set(AUTHORIZATION_ERRORS) == concrete
        assert AUTHORIZATION_ERRORS[GROUP] is Errors.GROUP_AUTHORIZATION_FAILED

    @given(st.sets(st.sampled_from([operation for operation in AclOperation if operation])))
    def test_bit_fields(self, operations: set[AclOperation]) -> None:
        assert from_bit_field(to_bit_field(operations)) == operations

    def test_bits_without_a_meaning_are_left_out(self) -> None:
        assert from_bit_field(-(2**31) | 1 << 25 | 1 << AclOperation.READ | 1) == {AclOperation.READ}


class TestPatternFilter:
    @pytest.mark.parametrize(
        ("resource_type", "name", "pattern_type", "matches"),
        [
            (ResourceType.ANY, None, PatternType.ANY, "literal prefixed wildcard group"),
            (TOPIC, None, PatternType.ANY, "literal prefixed wildcard"),
            (GROUP, None, PatternType.ANY, "group"),
            (TOPIC, None, LITERAL, "literal wildcard"),
            (TOPIC, None, PREFIXED, "prefixed"),
            (TOPIC, "foo", LITERAL, "literal"),
            (TOPIC, "*", LITERAL, "wildcard"),
            (TOPIC, "foo", PREFIXED, ""),
            (TOPIC, "fo", PREFIXED, "prefixed"),
            (TOPIC, "foo", PatternType.ANY, "literal"),
            (TOPIC, "fo", PatternType.ANY, "prefixed"),
            (TOPIC, "*", PatternType.ANY, "wildcard"),
            (TOPIC, "foo", PatternType.MATCH, "literal prefixed wildcard"),
            (TOPIC, "fox", PatternType.MATCH, "prefixed wildcard"),
            (TOPIC, "bar", PatternType.MATCH, "wildcard"),
            (TOPIC, None, PatternType.MATCH, "literal prefixed wildcard"),
            (ResourceType.ANY, "foo", PatternType.MATCH, "literal prefixed wildcard group"),
            (TOPIC, "foo", PatternType.UNKNOWN, ""),
        ],
    )
    def test_what_it_selects(
        self, resource_type: ResourceType, name: str | None, pattern_type: PatternType, matches: str
    ) -> None:
        patterns = {
            "literal": ResourcePattern(TOPIC, "foo"),
            "prefixed": ResourcePattern(TOPIC, "fo", PREFIXED),
            "wildcard": ResourcePattern(TOPIC, "*"),
            "group": ResourcePattern(GROUP, "foo"),
        }
        selecting = ResourcePatternFilter(resource_type, name, pattern_type)
        assert " ".join(key for key, pattern in patterns.items() if selecting.matches(pattern)) == matches

    @pytest.mark.parametrize(
        ("pattern_filter", "why"),
        [
            (ResourcePatternFilter(), "resource type is ANY"),
            (ResourcePatternFilter(TOPIC), "resource name is any"),
            (ResourcePatternFilter(TOPIC, "foo", PatternType.MATCH), "pattern type is MATCH"),
            (ResourcePatternFilter(TOPIC, "foo", LITERAL), None),
        ],
    )
    def test_whether_it_selects_one_at_most(self, pattern_filter: ResourcePatternFilter, why: str | None) -> None:
        assert pattern_filter.find_indefinite_field() == why


class TestBindingFilter:
    binding = acl("User:alice", AclOperation.READ, TOPIC, "foo", host="192.0.2.7")

    @pytest.mark.parametrize(
        ("entry_filter", "matches"),
        [
            (AccessControlEntryFilter(), True),
            (AccessControlEntryFilter("User:alice"), True),
            (AccessControlEntryFilter("User:*"), False),
            (AccessControlEntryFilter(host="192.0.2.7"), True),
            (AccessControlEntryFilter(host="*"), False),
            (AccessControlEntryFilter(operation=AclOperation.READ), True),
            (AccessControlEntryFilter(operation=AclOperation.ALL), False),
            (AccessControlEntryFilter(permission_type=AclPermissionType.ALLOW), True),
            (AccessControlEntryFilter(permission_type=AclPermissionType.DENY), False),
        ],
    )
    def test_entries(self, entry_filter: AccessControlEntryFilter, matches: bool) -> None:
        assert AclBindingFilter(entry_filter=entry_filter).matches(self.binding) is matches

    def test_both_parts_have_to_match(self) -> None:
        assert not AclBindingFilter(ResourcePatternFilter(GROUP)).matches(self.binding)
        assert AclBindingFilter().matches(self.binding)

    def test_its_own_filter_selects_it_alone(self) -> None:
        own = self.binding.to_filter()
        assert own.matches(self.binding)
        assert own.matches_at_most_one()
        assert not AclBindingFilter().matches_at_most_one()
        for other in (
            acl("User:bob", AclOperation.READ, TOPIC, "foo", host="192.0.2.7"),
            acl("User:alice", AclOperation.WRITE, TOPIC, "foo", host="192.0.2.7"),
            acl("User:alice", AclOperation.READ, TOPIC, "foo", PREFIXED, host="192.0.2.7"),
            acl("User:alice", AclOperation.READ, TOPIC, "foo"),
            acl("User:alice", AclOperation.READ, TOPIC, "foo", LITERAL, AclPermissionType.DENY, "192.0.2.7"),
        ):
            assert not own.matches(other)

    def test_it_can_be_read(self) -> None:
        assert str(self.binding) == "ALLOW Read to User:alice from 192.0.2.7 on Topic:LITERAL:foo"

    def test_parts_that_are_not_known_here(self) -> None:
        assert not self.binding.is_unknown
        assert acl("User:alice", AclOperation.UNKNOWN, TOPIC, "foo").is_unknown
        assert AclBindingFilter(ResourcePatternFilter(ResourceType.UNKNOWN)).is_unknown
        assert AclBindingFilter(entry_filter=AccessControlEntryFilter(operation=AclOperation.UNKNOWN)).is_unknown
        assert not AclBindingFilter().is_unknown
