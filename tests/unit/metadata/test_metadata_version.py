"""Metadata versions and the other features."""

from __future__ import annotations

import pytest

from barnabas.metadata.errors import MetadataReplayError
from barnabas.metadata.feature_versions import ELR_VERSION, FEATURES, GROUP_VERSION, TRANSACTION_VERSION
from barnabas.metadata.metadata_version import LATEST_VERSION, MINIMUM_VERSION, MetadataVersion
from barnabas.protocol.internal import metadata as records


def test_levels_and_names() -> None:
    assert MetadataVersion.for_level(7) is MINIMUM_VERSION
    assert MetadataVersion.for_level(30) is LATEST_VERSION
    assert MetadataVersion.for_level(17).release == "3.7-IV2"
    assert MetadataVersion.for_level(17).short_release == "3.7"
    assert [version.value for version in MetadataVersion] == list(range(7, 31))


@pytest.mark.parametrize(
    ("text", "level"),
    [("3.7-IV2", 17), ("3.7", 19), ("3.7.1", 19), ("4.0", 25), ("4.3", 30), ("3.3", 7), ("4.3-IV0", 30)],
)
def test_a_release_by_name(text: str, level: int) -> None:
    assert MetadataVersion.for_release(text).value == level


@pytest.mark.parametrize("text", ["", "2.8", "4.9", "3.7-IV9", "nonsense", "4"])
def test_an_unknown_release(text: str) -> None:
    with pytest.raises(ValueError, match="invalid metadata version"):
        MetadataVersion.for_release(text)


@pytest.mark.parametrize("level", [-1, 0, 6, 31])
def test_an_unknown_level_is_told(level: int) -> None:
    with pytest.raises(MetadataReplayError, match=rf"{level} is unknown: .* levels 7 \(3.3-IV3\) to 30"):
        MetadataVersion.for_level(level)


def test_record_versions() -> None:
    def versions(level: int) -> tuple[int, int, int, int]:
        version = MetadataVersion.for_level(level)
        return (
            version.register_broker_record_version,
            version.broker_registration_change_record_version,
            version.partition_record_version,
            version.partition_change_record_version,
        )

    assert versions(7) == (1, 1, 0, 0)
    assert versions(8) == (2, 1, 0, 0)
    assert versions(16) == (2, 1, 0, 0)
    assert versions(17) == (3, 2, 1, 1)
    assert versions(22) == (3, 2, 1, 1)
    assert versions(23) == (3, 2, 2, 2)
    assert versions(30) == (4, 3, 2, 2)
    # The newest must be able to write all there is.
    assert versions(30) == (
        records.RegisterBrokerRecord.versions.highest,
        records.BrokerRegistrationChangeRecord.versions.highest,
        records.PartitionRecord.versions.highest,
        records.PartitionChangeRecord.versions.highest,
    )


def test_what_is_supported_since_when() -> None:
    def since(attribute: str) -> int:
        return min(version.value for version in MetadataVersion if getattr(version, attribute))

    assert since("supports_migration") == 8
    assert since("supports_scram") == 11
    assert since("supports_transactions") == 13
    assert since("supports_delegation_tokens") == 14
    assert since("supports_controller_registration") == 15
    assert since("supports_directories") == 17
    assert since("supports_elr") == 23
    assert since("supports_cordoned_directories") == 30
    assert [version.value for version in MetadataVersion if version.raises_leader_epoch_on_isr_shrink] == [
        7,
        8,
        9,
        10,
        11,
    ]


def test_the_way_back() -> None:
    assert MetadataVersion.IBP_4_0_IV1.can_be_reached_by_downgrade_from(MetadataVersion.IBP_4_2_IV1)
    assert not MetadataVersion.IBP_4_2_IV1.can_be_reached_by_downgrade_from(MetadataVersion.IBP_4_3_IV0)
    assert MetadataVersion.IBP_4_3_IV0.can_be_reached_by_downgrade_from(MetadataVersion.IBP_4_3_IV0)
    assert [version.value for version in MetadataVersion if version.changes_metadata] == [
        7,
        8,
        11,
        13,
        14,
        15,
        17,
        23,
        30,
    ]


def test_levels_of_a_new_cluster() -> None:
    def levels(version: MetadataVersion) -> dict[str, int]:
        return {name: level for name, feature in FEATURES.items() if (level := feature.default_level(version))}

    assert levels(MINIMUM_VERSION) == {}
    assert levels(MetadataVersion.IBP_3_9_IV0) == {"kraft.version": 1}
    assert levels(MetadataVersion.IBP_4_0_IV3) == {"kraft.version": 1, "transaction.version": 2, "group.version": 1}
    assert levels(LATEST_VERSION) == {
        "kraft.version": 1,
        "transaction.version": 2,
        "group.version": 1,
        "eligible.leader.replicas.version": 1,
    }


def test_what_is_not_served_is_off_in_a_new_cluster_but_known() -> None:
    for name in ("share.version", "streams.version"):
        assert FEATURES[name].default_level(LATEST_VERSION) == 0
        assert FEATURES[name].highest == 1


def test_what_a_level_needs() -> None:
    assert ELR_VERSION.missing(1, {"metadata.version": 22}) == {"metadata.version": 23}
    assert ELR_VERSION.missing(1, {"metadata.version": 23}) == {}
    assert GROUP_VERSION.missing(0, {}) == {}
    assert TRANSACTION_VERSION.highest == 2
    with pytest.raises(ValueError, match="no level 3; its levels are 0 to 2"):
        TRANSACTION_VERSION.missing(3, {})
