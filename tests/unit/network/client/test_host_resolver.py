"""How hosts are handed to the machine's resolver."""

from __future__ import annotations

import pytest

from barnabas.network.client.host_resolver import for_resolver, resolve_all_ips


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "fe80::1%lo"])
def test_an_address_needs_no_international_names(address: str) -> None:
    assert for_resolver(address) == address.encode()


@pytest.mark.parametrize(
    "name", ["localhost", "bücher.example", "broker-1.example", "\u0661\u0662\u0667.\u0660.\u0660.\u0661"]
)
def test_a_name_stays_what_it_is(name: str) -> None:
    assert for_resolver(name) == name


def test_an_address_is_its_own() -> None:
    assert [one.ip for one in resolve_all_ips("127.0.0.1")] == ["127.0.0.1"]
