"""DescribeClientQuotas and DescribeUserScramCredentials, answered from an image."""

from __future__ import annotations

import pytest

from barnabas.common.errors import Errors, InvalidRequestError, UnsupportedVersionError
from barnabas.metadata.cache import MetadataCache
from barnabas.protocol.internal.metadata import ClientQuotaRecord, EntityData, UserScramCredentialRecord
from barnabas.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from barnabas.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from unit.metadata.samples import image_of

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
ENTITIES: list[dict[str, str | None]] = [
    {"user": "ann"},
    {"user": "bob"},
    {"user": None},
    {"user": "ann", "client-id": "c1"},
    {"user": "ann", "client-id": None},
    {"client-id": "c1"},
    {"ip": "10.0.0.1"},
    {"ip": None},
]


@pytest.fixture
def cache() -> MetadataCache:
    cache = MetadataCache()
    cache.set_image(
        image_of(
            [
                ClientQuotaRecord(
                    entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
                    key="producer_byte_rate",
                    value=float(value),
                )
                for value, entity in enumerate(ENTITIES)
            ]
            + [
                UserScramCredentialRecord(name=name, mechanism=mechanism, iterations=4096 * mechanism)
                for name, mechanism in (("ann", 2), ("ann", 1), ("bob", 1))
            ]
        )
    )
    return cache


def found(cache: MetadataCache, *components: tuple[str, int, str | None], strict: bool = False) -> list[int]:
    """The numbers of the entities that match, in the order of the list above."""
    parts = [ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in components]
    response = cache.describe_client_quotas(DescribeClientQuotasRequest(components=parts, strict=strict))
    assert (response.error_code, response.error_message) == (0, "")
    assert DescribeClientQuotasResponse.decode(response.encode(1), 1) == response
    assert response.entries is not None
    for entry in response.entries:
        (limit,) = entry.values
        assert limit.key == "producer_byte_rate"
        assert {part.entity_type: part.entity_name for part in entry.entity} == ENTITIES[int(limit.value)]
    return sorted(int(entry.values[0].value) for entry in response.entries)


def test_quotas_for_more_clients_come_first(cache: MetadataCache) -> None:
    response = cache.describe_client_quotas(DescribeClientQuotasRequest(components=[]))
    kinds = [[part.entity_type for part in entry.entity] for entry in response.entries or ()]
    assert kinds == [["client-id"], ["ip"], ["ip"], ["user"], ["user"], ["user"], *[["client-id", "user"]] * 2]


def test_limits_come_in_the_order_of_kafka() -> None:
    keys = ["producer_byte_rate", "request_percentage", "controller_mutation_rate", "consumer_byte_rate"]
    part = EntityData(entity_type="user", entity_name="ann")
    cache = MetadataCache()
    cache.set_image(image_of([ClientQuotaRecord(entity=[part], key=key, value=1.0) for key in keys]))
    response = cache.describe_client_quotas(DescribeClientQuotasRequest(components=[]))
    assert [value.key for entry in response.entries or () for value in entry.values] == [
        "consumer_byte_rate",
        "request_percentage",
        "producer_byte_rate",
        "controller_mutation_rate",
    ]


def test_quota_filters(cache: MetadataCache) -> None:
    assert found(cache) == list(range(8))
    assert found(cache, strict=True) == []
    assert found(cache, ("user", EXACT, "ann")) == [0, 3, 4]
    assert found(cache, ("user", EXACT, "ann"), strict=True) == [0]
    assert found(cache, ("user", DEFAULT, None)) == [2]
    assert found(cache, ("user", SPECIFIED, None)) == [0, 1, 2, 3, 4]
    assert found(cache, ("user", SPECIFIED, None), strict=True) == [0, 1, 2]
    assert found(cache, ("user", EXACT, "ann"), ("client-id", SPECIFIED, None)) == [3, 4]
    assert found(cache, ("user", EXACT, "ann"), ("client-id", DEFAULT, None)) == [4]
    assert found(cache, ("client-id", EXACT, "c1")) == [3, 5]
    assert found(cache, ("ip", SPECIFIED, None)) == [6, 7]
    assert found(cache, ("user", EXACT, "nobody")) == []


@pytest.mark.parametrize(
    ("components", "error"),
    [
        ([("", EXACT, "x")], InvalidRequestError),
        ([("user", EXACT, "a"), ("user", SPECIFIED, None)], InvalidRequestError),
        ([("user", EXACT, None)], InvalidRequestError),
        ([("user", DEFAULT, "x")], InvalidRequestError),
        ([("user", SPECIFIED, "x")], InvalidRequestError),
        ([("user", 7, None)], InvalidRequestError),
        ([("ip", EXACT, "10.0.0.1"), ("user", EXACT, "a")], InvalidRequestError),
        ([("group", EXACT, "g")], UnsupportedVersionError),
    ],
)
def test_filters_that_make_no_sense(
    cache: MetadataCache, components: list[tuple[str, int, str | None]], error: type[Exception]
) -> None:
    with pytest.raises(error):
        found(cache, *components)


def scram(cache: MetadataCache, *users: str, everybody: bool = False) -> list[tuple[str, int, list[tuple[int, int]]]]:
    request = DescribeUserScramCredentialsRequest(users=None if everybody else [UserName(name=name) for name in users])
    response = cache.describe_scram_credentials(request)
    assert DescribeUserScramCredentialsResponse.decode(response.encode(0), 0) == response
    for result in response.results:
        assert (result.error_message == "") is (result.error_code == 0)
    return [
        (result.user, result.error_code, [(info.mechanism, info.iterations) for info in result.credential_infos])
        for result in response.results
    ]


def test_scram_credentials(cache: MetadataCache) -> None:
    everybody = [("ann", 0, [(1, 4096), (2, 8192)]), ("bob", 0, [(1, 4096)])]
    assert scram(cache) == everybody
    assert scram(cache, everybody=True) == everybody
    assert scram(cache, "bob", "nobody", "ann", "ann") == [
        ("bob", 0, [(1, 4096)]),
        ("nobody", Errors.RESOURCE_NOT_FOUND, []),
        ("ann", Errors.DUPLICATE_RESOURCE, []),
    ]
    assert scram(MetadataCache()) == []
