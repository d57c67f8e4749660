"""AlterClientQuotas: who can have which quota, and of which value."""

from __future__ import annotations

import pytest

from barnabas.common.errors import Errors
from barnabas.controller.config import ControllerPlugins
from barnabas.metadata.client_quotas import ClientQuotaEntity
from barnabas.protocol.internal.metadata import ClientQuotaRecord, EntityData
from barnabas.protocol.messages import alter_client_quotas as messages
from unit.controller.harness import CONTEXT, Harness

Entity = list[tuple[str, str | None]]


@pytest.fixture
def harness() -> Harness:
    return Harness()


def entry(entity: Entity, **ops: float | None) -> messages.RequestEntryData:
    return messages.RequestEntryData(
        entity=[messages.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[
            messages.OpData(key=key, remove=True) if value is None else messages.OpData(key=key, value=value)
            for key, value in ops.items()
        ],
    )


def alter(harness: Harness, *entries: messages.RequestEntryData, validate_only: bool = False) -> list[Errors]:
    request = messages.AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    response = harness.result(harness.controller.alter_client_quotas(CONTEXT, request))
    return [Errors(each.error_code) for each in response.entries]


def limits(harness: Harness, **entity: str | None) -> dict[str, float]:
    parts = {kind.replace("_", "-"): name for kind, name in entity.items()}
    return dict(harness.managers.client_quotas.limits(ClientQuotaEntity.of(parts)))


def test_quotas_are_set_changed_and_removed(harness: Harness) -> None:
    user: Entity = [("user", "alice")]
    assert alter(harness, entry(user, producer_byte_rate=1000.0, request_percentage=12.5)) == [Errors.NONE]
    assert limits(harness, user="alice") == {"producer_byte_rate": 1000.0, "request_percentage": 12.5}
    assert alter(harness, entry(user, producer_byte_rate=None, request_percentage=20.0)) == [Errors.NONE]
    assert limits(harness, user="alice") == {"request_percentage": 20.0}
    assert alter(harness, entry(user, request_percentage=None)) == [Errors.NONE]
    assert limits(harness, user="alice") == {}
    assert harness.state()["quotas"] == {}
    parts = [EntityData(entity_type="user", entity_name="alice")]
    assert harness.written()[-1] == ClientQuotaRecord(entity=parts, key="request_percentage", remove=True)


def test_the_parts_of_an_entity_come_back_by_type(harness: Harness) -> None:
    both = entry([("user", "alice"), ("client-id", "billing")], producer_byte_rate=1.0)
    response = harness.result(
        harness.controller.alter_client_quotas(CONTEXT, messages.AlterClientQuotasRequest(entries=[both]))
    )
    assert [(part.entity_type, part.entity_name) for part in response.entries[0].entity] == [
        ("client-id", "billing"),
        ("user", "alice"),
    ]


def test_the_default_is_an_entity_of_its_own(harness: Harness) -> None:
    alter(
        harness,
        entry([("user", None)], consumer_byte_rate=5.0),
        entry([("user", None), ("client-id", "c")], consumer_byte_rate=6.0),
        entry([("client-id", None)], controller_mutation_rate=0.5),
        entry([("ip", None)], connection_creation_rate=7.0),
        entry([("ip", "127.0.0.1")], connection_creation_rate=8.0),
    )
    assert limits(harness, user=None) == {"consumer_byte_rate": 5.0}
    assert limits(harness, user=None, client_id="c") == {"consumer_byte_rate": 6.0}
    assert limits(harness, ip=None) == {"connection_creation_rate": 7.0}
    assert limits(harness, ip="127.0.0.1") == {"connection_creation_rate": 8.0}
    assert len(harness.written()) == 5


def test_what_changes_nothing_is_not_written(harness: Harness) -> None:
    alter(harness, entry([("user", "a")], producer_byte_rate=1.0))
    harness.mark()
    found = alter(
        harness,
        entry([("user", "a")], producer_byte_rate=1.0, consumer_byte_rate=None),
        entry([("user", "b")], consumer_byte_rate=None),
    )
    assert found == [Errors.NONE, Errors.NONE]
    assert harness.written() == []


@pytest.mark.parametrize(
    ("entity", "key", "value"),
    [
        ([], "producer_byte_rate", 1.0),
        ([("group", "g")], "producer_byte_rate", 1.0),
        ([("user", "")], "producer_byte_rate", 1.0),
        ([("user", "a"), ("user", "b")], "producer_byte_rate", 1.0),
        ([("ip", "127.0.0.1"), ("user", "a")], "connection_creation_rate", 1.0),
        ([("ip", "not an address")], "connection_creation_rate", 1.0),
        ([("ip", "127.0.0.1")], "producer_byte_rate", 1.0),
        ([("user", "a")], "connection_creation_rate", 1.0),
        ([("user", "a")], "bogus", 1.0),
        ([("user", "a")], "producer_byte_rate", 0.0),
        ([("user", "a")], "producer_byte_rate", -1.0),
        ([("user", "a")], "producer_byte_rate", 1.5),
        ([("user", "a")], "producer_byte_rate", 1e19),
        ([("user", "a")], "request_percentage", float("nan")),
        ([("user", "a")], "request_percentage", float("inf")),
        ([("ip", None)], "connection_creation_rate", 2.0**31),
        ([("ip", None)], "connection_creation_rate", 0.5),
    ],
)
def test_what_cannot_be_is_refused(harness: Harness, entity: Entity, key: str, value: float) -> None:
    good = entry([("user", "good")], producer_byte_rate=1.0)
    assert alter(harness, entry(entity, **{key: value}), good) == [Errors.INVALID_REQUEST, Errors.NONE]
    assert len(harness.written()) == 1


def test_the_largest_values_are_accepted(harness: Harness) -> None:
    assert alter(harness, entry([("user", "a")], producer_byte_rate=2.0**63)) == [Errors.NONE]
    assert alter(harness, entry([("ip", None)], connection_creation_rate=2.0**31 - 1)) == [Errors.NONE]


def test_an_entity_changes_as_a_whole(harness: Harness) -> None:
    assert alter(harness, entry([("user", "a")], producer_byte_rate=1.0, bogus=1.0)) == [Errors.INVALID_REQUEST]
    twice = entry([("user", "a")], producer_byte_rate=1.0)
    twice.ops *= 2
    assert alter(harness, twice) == [Errors.INVALID_REQUEST]
    same = entry([("user", "a"), ("client-id", "c")], producer_byte_rate=1.0)
    turned = entry([("client-id", "c"), ("user", "a")], producer_byte_rate=2.0)
    assert alter(harness, same, turned) == [Errors.INVALID_REQUEST]
    assert harness.written() == []


def test_validation_writes_nothing(harness: Harness) -> None:
    assert alter(harness, entry([("user", "a")], producer_byte_rate=1.0), validate_only=True) == [Errors.NONE]
    assert harness.written() == []


def test_host_names_can_be_resolved_by_whoever_can() -> None:
    harness = Harness(plugins=ControllerPlugins(is_resolvable=lambda name: name == "here.example"))
    assert alter(
        harness,
        entry([("ip", "here.example")], connection_creation_rate=1.0),
        entry([("ip", "there.example")], connection_creation_rate=1.0),
    ) == [Errors.NONE, Errors.INVALID_REQUEST]
