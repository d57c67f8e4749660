"""The one registration of a handler: its maker and its APIs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest.mock import MagicMock

import pytest

from barnabas.broker.handlers.broker_handlers import FAMILIES, INLINE_APIS, LIGHT_BYTES
from barnabas.broker.handlers.forwarded import BARE_FORWARDED
from barnabas.protocol.api_keys import ApiKey
from barnabas.server.dispatch import handlers_of


@pytest.mark.parametrize(("make", "api_keys"), FAMILIES, ids=[make.__name__.strip("_") for make, _ in FAMILIES])
def test_a_family_has_a_method_for_each_of_its_apis(
    make: Callable[[Any], object], api_keys: tuple[ApiKey, ...]
) -> None:
    assert handlers_of(make(MagicMock())).keys() == set(api_keys)


def test_no_api_is_registered_twice() -> None:
    registered = Counter([*BARE_FORWARDED, *(api_key for _, api_keys in FAMILIES for api_key in api_keys)])
    assert [api_key for api_key, times in registered.items() if times > 1] == []
    assert set(LIGHT_BYTES) <= set(registered)
    assert set(INLINE_APIS) <= {*registered, ApiKey.API_VERSIONS}
