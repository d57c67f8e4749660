"""Which limit a client has, and with whom it shares it."""

from __future__ import annotations

import itertools

import pytest

from barnabas.quota.explanation import explain
from barnabas.quota.quota_entity import DEFAULT, QuotaEntity, QuotaLevel, QuotaTags, precedence
from barnabas.quota.quota_limits import QuotaLimits
from barnabas.quota.quota_type import ClientQuotaType, QuotaType

EIGHT = [
    ("/config/users/alice/clients/billing", QuotaEntity("alice", "billing"), ("alice", "billing")),
    ("/config/users/alice/clients/<default>", QuotaEntity("alice", DEFAULT), ("alice", "billing")),
    ("/config/users/alice", QuotaEntity("alice", None), ("alice", "")),
    ("/config/users/<default>/clients/billing", QuotaEntity(DEFAULT, "billing"), ("alice", "billing")),
    ("/config/users/<default>/clients/<default>", QuotaEntity(DEFAULT, DEFAULT), ("alice", "billing")),
    ("/config/users/<default>", QuotaEntity(DEFAULT, None), ("alice", "")),
    ("/config/clients/billing", QuotaEntity(None, "billing"), ("", "billing")),
    ("/config/clients/<default>", QuotaEntity(None, DEFAULT), ("", "billing")),
]


@pytest.mark.mechanism("Q02")
def test_there_are_nine_kinds_of_which_four_are_about_clients() -> None:
    assert [str(kind) for kind in QuotaType] == [
        "Fetch",
        "Produce",
        "Request",
        "ControllerMutation",
        "LeaderReplication",
        "FollowerReplication",
        "AlterLogDirsReplication",
        "RLMCopy",
        "RLMFetch",
    ]
    assert [kind.client_quota_type.key for kind in list(QuotaType)[:4]] == [
        "consumer_byte_rate",
        "producer_byte_rate",
        "request_percentage",
        "controller_mutation_rate",
    ]
    for kind in list(QuotaType)[4:]:
        with pytest.raises(ValueError, match="not a client quota"):
            _ = kind.client_quota_type


@pytest.mark.mechanism("Q02")
def test_the_order_is_that_of_the_documentation() -> None:
    assert [entity.path for entity in precedence("alice", "billing")] == [path for path, _, _ in EIGHT]


@pytest.mark.mechanism("Q02")
@pytest.mark.parametrize("first", range(8))
def test_the_most_specific_entity_counts_and_its_level_gives_the_tags(first: int) -> None:
    """All of the candidates from one on have a limit; then one after the other is taken away."""
    limits = QuotaLimits()
    for number, (_, entity, _) in enumerate(EIGHT[first:], first):
        limits.update(entity, 100.0 + number)
    for number, (_, entity, tags) in enumerate(EIGHT[first:], first):
        assert limits.match("alice", "billing") == entity
        assert limits.tags_of("alice", "billing") == tags
        assert limits.limit_of(QuotaTags(*tags)) == 100.0 + number
        limits.remove(entity)
    assert limits.match("alice", "billing") is None


@pytest.mark.mechanism("Q02")
def test_tags_and_limit_agree_with_the_eight_steps_for_every_combination() -> None:
    """All 256 sets of entities, for four clients: the limit under the tags is that of the first step with one."""
    entities = [entity for _, entity, _ in EIGHT]
    for present in itertools.product((False, True), repeat=8):
        limits = QuotaLimits()
        for number, entity in enumerate(entities):
            if present[number]:
                limits.update(entity, 1.0 + number)
        for user, client_id in itertools.product(("alice", "bob"), ("billing", "other", "")):
            expected = next(
                (1.0 + entities.index(step) for step in precedence(user, client_id) if step in entities_of(limits)),
                None,
            )
            assert limits.limit_of(limits.tags_of(user, client_id)) == expected, (present, user, client_id)


def entities_of(limits: QuotaLimits) -> set[QuotaEntity]:
    return set(limits._limits)


@pytest.mark.mechanism("Q03")
def test_levels_are_counted_so_that_the_last_one_out_switches_them_off() -> None:
    limits = QuotaLimits()
    assert limits.levels == 0
    limits.update(QuotaEntity("alice"), 1.0)
    limits.update(QuotaEntity("alice"), 2.0)  # the same one again
    limits.update(QuotaEntity("bob"), 1.0)
    limits.update(QuotaEntity(None, "billing"), 1.0)
    limits.update(QuotaEntity(DEFAULT, DEFAULT), 1.0)
    assert limits.levels == QuotaLevel.USER | QuotaLevel.CLIENT_ID | QuotaLevel.USER_CLIENT_ID
    limits.remove(QuotaEntity("alice"))
    limits.remove(QuotaEntity("alice"))  # it is gone already
    assert limits.levels & QuotaLevel.USER
    limits.remove(QuotaEntity("bob"))
    assert limits.levels == QuotaLevel.CLIENT_ID | QuotaLevel.USER_CLIENT_ID
    limits.remove(QuotaEntity(None, "billing"))
    limits.remove(QuotaEntity(DEFAULT, DEFAULT))
    assert limits.levels == 0


@pytest.mark.mechanism("Q03")
@pytest.mark.parametrize(
    ("entity", "tags"),
    [
        (QuotaEntity("bob"), ("alice", "")),
        (QuotaEntity(None, "other"), ("", "billing")),
        (QuotaEntity("bob", "other"), ("alice", "billing")),
    ],
)
def test_with_one_level_nobody_is_looked_up(
    entity: QuotaEntity, tags: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = QuotaLimits()
    limits.update(entity, 1.0)

    def fail(*_: object) -> None:
        raise AssertionError("looked up")

    monkeypatch.setattr(QuotaLimits, "match", fail)
    assert limits.tags_of("alice", "billing") == tags
    limits.update(QuotaEntity("bob") if entity.level is not QuotaLevel.USER else QuotaEntity(None, "other"), 1.0)
    with pytest.raises(AssertionError, match="looked up"):
        limits.tags_of("alice", "billing")


def test_a_quota_is_for_somebody() -> None:
    with pytest.raises(ValueError, match="needs a user or a client ID"):
        QuotaLimits().update(QuotaEntity(), 1.0)


def test_an_explanation_names_the_step_and_the_reason() -> None:
    explanation = explain({QuotaEntity("alice"): 7.0, QuotaEntity(None, DEFAULT): 9.0}, "alice", "billing")
    assert [step.matched for step in explanation.steps] == [False, False, True, False, False, False, False, False]
    assert [step.limit for step in explanation.steps] == [None, None, 7.0, None, None, None, None, 9.0]
    assert explanation.limit == 7.0
    assert explanation.tags == ("alice", "")
    assert explanation.reason == "steps 1 and 2 have no limit; step 3, user alice, is the first that has one"
    nobody = explain({}, "alice", "billing")
    assert (nobody.limit, nobody.tags) == (None, None)


def test_the_kinds_a_callback_sees_are_named_by_their_keys() -> None:
    assert ClientQuotaType("producer_byte_rate") is ClientQuotaType.PRODUCE
