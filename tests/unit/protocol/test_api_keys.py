"""The API table."""

from __future__ import annotations

import pytest

from barnabas.protocol.api_keys import ApiKey, Scope, Trait
from barnabas.protocol.versions import VersionRange
from oracles.definitions import load_definitions
from oracles.java import JavaOracle


def test_each_key_finds_its_messages() -> None:
    for key in ApiKey:
        assert key.request.api_key is key
        assert key.response.api_key is key
        assert key.request.versions == key.response.versions == key.versions
        assert key.request.__name__ == f"{key.title}Request"


def test_produce_is_announced_from_zero_though_not_spoken() -> None:
    assert ApiKey.PRODUCE.advertised_versions() == VersionRange(0, 13)
    assert 2 not in ApiKey.PRODUCE.versions
    assert ApiKey.FETCH.advertised_versions() == VersionRange(4, 18)


def test_unstable_version_is_announced_only_when_asked_for() -> None:
    assert ApiKey.INIT_PRODUCER_ID.advertised_versions() == VersionRange(0, 5)
    assert ApiKey.INIT_PRODUCER_ID.advertised_versions(unstable=True) == VersionRange(0, 6)


def test_api_versions_responds_with_the_oldest_header() -> None:
    assert ApiKey.API_VERSIONS.request_header_version(4) == 2
    assert ApiKey.API_VERSIONS.response_header_version(4) == 0
    assert ApiKey.METADATA.response_header_version(9) == 1


@pytest.mark.java
def test_table_is_kafkas(java_oracle: JavaOracle) -> None:
    theirs = {row["id"]: row for row in java_oracle.api_keys() if row["listeners"]}
    assert set(theirs) == {int(key) for key in ApiKey}
    for key in ApiKey:
        row = theirs[int(key)]
        scope = Scope(0)
        for listener in row["listeners"]:
            scope |= Scope[listener.upper()]
        assert (key.scope, key.title) == (scope, row["name"])
        assert (key.versions.lowest, key.versions.highest) == (row["lowestVersion"], row["highestUnstableVersion"])
        assert key.stable_versions.highest == row["highestVersion"]
        assert (Trait.CLUSTER_ACTION in key.traits) == row["clusterAction"], key
        assert (Trait.FORWARDABLE in key.traits) == row["forwardable"], key
        assert (Trait.LATE_BUFFER in key.traits) == row["requiresDelayedAllocation"], key
        for version in range(key.versions.lowest, key.versions.highest + 1):
            assert key.request_header_version(version) == row["requestHeaderVersions"][str(version)]
            assert key.response_header_version(version) == row["responseHeaderVersions"][str(version)]


def test_flexible_versions_are_kafkas() -> None:
    definitions = load_definitions()
    if not definitions:
        pytest.skip("no jars in target/jars")
    for key in ApiKey:
        assert str(key.flexible) == definitions[f"{key.title}Request"]["flexibleVersions"]
