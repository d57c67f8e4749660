"""What the tests of quotas share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from quota_fixtures import QuotaBench, quota_bench


@pytest.fixture
def bench() -> Iterator[QuotaBench]:
    with quota_bench() as made:
        yield made
