"""UpdateFeatures: who must support a level, and in which direction it may move."""

from __future__ import annotations

import pytest

from barnabas.common.errors import Errors
from barnabas.controller.bootstrap import BootstrapMetadata
from barnabas.controller.request_context import ControllerRequestContext
from barnabas.metadata.errors import MetadataReplayError
from barnabas.metadata.metadata_version import MetadataVersion
from barnabas.protocol.internal.metadata import ConfigRecord, FeatureLevelRecord, NoOpRecord
from barnabas.protocol.messages import broker_registration, controller_registration
from barnabas.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from unit.controller.harness import CONTEXT, Harness, incarnation, supported_features

UPGRADE, SAFE, UNSAFE = 1, 2, 3


def update(
    harness: Harness, *updates: tuple[str, int, int], version: int = 2, validate_only: bool = False
) -> UpdateFeaturesResponse:
    request = UpdateFeaturesRequest(
        validate_only=validate_only,
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind) for name, level, kind in updates
        ],
    )
    context = ControllerRequestContext(request_version=version)
    return harness.result(harness.controller.update_features(context, request))


def level(name: str, value: int) -> FeatureLevelRecord:
    return FeatureLevelRecord(name=name, feature_level=value)


def at(release: str, **levels: int) -> Harness:
    chosen = {name.replace("_", "."): value for name, value in levels.items()}
    version = MetadataVersion.for_release(release)
    return Harness(bootstrap=BootstrapMetadata.for_version(version, "a test", levels=chosen))


def test_a_level_goes_up_and_down() -> None:
    harness = Harness()
    assert update(harness, ("transaction.version", 1, SAFE)).error_code == 0
    assert update(harness, ("transaction.version", 0, UNSAFE)).error_code == 0
    assert "transaction.version" not in harness.managers.features.finalized_features().levels
    assert update(harness, ("transaction.version", 2, UPGRADE)).error_code == 0
    assert harness.written() == [level("transaction.version", number) for number in (1, 0, 2)]


def test_old_clients_get_a_result_for_each_feature() -> None:
    harness = Harness()
    response = update(harness, ("group.version", 1, UPGRADE), ("share.version", 1, UPGRADE), version=1)
    assert [(each.feature, each.error_code) for each in response.results] == [
        ("group.version", 0),
        ("share.version", 0),
    ]
    failed = update(harness, ("group.version", 9, UPGRADE), version=1)
    assert (failed.error_code, failed.results) == (Errors.INVALID_UPDATE_VERSION, [])
    assert update(harness, ("group.version", 1, UPGRADE)).results == []


def test_version_0_says_downgrade_in_another_way() -> None:
    harness = Harness()
    context = ControllerRequestContext(request_version=0)
    for allow, code in ((False, Errors.INVALID_UPDATE_VERSION), (True, Errors.NONE)):
        request = UpdateFeaturesRequest(
            feature_updates=[FeatureUpdateKey(feature="group.version", max_version_level=0, allow_downgrade=allow)]
        )
        assert harness.result(harness.controller.update_features(context, request)).error_code == code


@pytest.mark.parametrize(
    ("name", "wanted", "kind"),
    [
        ("transaction.version", 1, UPGRADE),
        ("transaction.version", 3, UPGRADE),
        ("transaction.version", -1, SAFE),
        ("transaction.version", 2, 0),
        ("transaction.version", 2, 7),
        ("bogus.version", 1, UPGRADE),
        ("metadata.version", 6, SAFE),
        ("metadata.version", 31, UPGRADE),
        ("metadata.version", 29, SAFE),
        ("metadata.version", 29, UNSAFE),
        ("kraft.version", 1, UPGRADE),
    ],
)
def test_what_cannot_be_is_refused(name: str, wanted: int, kind: int) -> None:
    harness = Harness()
    response = update(harness, (name, wanted, kind))
    assert Errors(response.error_code) is Errors.INVALID_UPDATE_VERSION
    assert response.error_message
    assert harness.written() == []


def test_a_feature_that_does_not_exist_is_called_that() -> None:
    """Level 0 of it is what every node supports."""
    response = update(Harness(), ("bogus.version", 0, UNSAFE))
    assert Errors(response.error_code) is Errors.INVALID_UPDATE_VERSION
    assert "The feature is unknown" in str(response.error_message)


def test_a_downgrade_does_not_go_up() -> None:
    harness = at("4.3", transaction_version=1)
    assert update(harness, ("transaction.version", 2, SAFE)).error_code == Errors.INVALID_UPDATE_VERSION


def test_all_or_nothing() -> None:
    harness = Harness()
    response = update(harness, ("transaction.version", 1, SAFE), ("group.version", 9, UPGRADE))
    assert response.error_code == Errors.INVALID_UPDATE_VERSION
    assert "group.version" in (response.error_message or "")
    assert harness.written() == []


def test_of_two_updates_of_a_feature_the_last_one_counts() -> None:
    """Kafka reads a request's updates into a map. A mistake in the last one is refused as that mistake."""
    harness = at("4.3", transaction_version=0)
    harness.mark()
    assert update(harness, ("transaction.version", 1, UPGRADE), ("transaction.version", 2, UPGRADE)).error_code == 0
    assert harness.written() == [FeatureLevelRecord(name="transaction.version", feature_level=2)]
    twice = update(harness, ("transaction.version", 1, SAFE), ("transaction.version", 9, UPGRADE))
    assert twice.error_code == Errors.INVALID_UPDATE_VERSION


def test_validation_writes_nothing() -> None:
    harness = Harness()
    assert update(harness, ("transaction.version", 1, SAFE), validate_only=True).error_code == 0
    assert harness.written() == []


def test_metadata_version_goes_up_and_over_harmless_levels_down() -> None:
    harness = at("3.9")
    assert update(harness, ("metadata.version", 22, UPGRADE)).error_code == 0
    assert update(harness, ("metadata.version", 18, SAFE)).error_code == 0
    refused = update(harness, ("metadata.version", 16, SAFE))  # 17 brought log directories
    assert "lose metadata" in (refused.error_message or "")
    assert harness.managers.features.metadata_version is MetadataVersion.IBP_3_7_IV3
    assert harness.written() == [level("metadata.version", 22), level("metadata.version", 18)]


def test_every_broker_must_support_a_level() -> None:
    harness = at("4.0", share_version=0)
    features = supported_features(share_version=None)
    harness.result(harness.register(5, features=features))
    refused = update(harness, ("share.version", 1, UPGRADE))
    assert "Broker 5" in (refused.error_message or "")
    harness.result(harness.register(5))
    assert update(harness, ("share.version", 1, UPGRADE)).error_code == 0


def test_every_controller_must_have_registered_and_support_a_level() -> None:
    harness = Harness(quorum_node_ids=(1, 2))
    refused = update(harness, ("transaction.version", 1, SAFE))
    assert "Controller 2 has not registered" in (refused.error_message or "")
    request = controller_registration.ControllerRegistrationRequest(controller_id=2, incarnation_id=incarnation(2))
    harness.result(harness.controller.register_controller(CONTEXT, request))
    refused = update(harness, ("transaction.version", 1, SAFE))
    assert "Controller 2 does not have" in (refused.error_message or "")
    request.features = [
        broker_registration.Feature(name="transaction.version", min_supported_version=0, max_supported_version=2)
    ]
    harness.result(harness.controller.register_controller(CONTEXT, request))
    assert update(harness, ("transaction.version", 1, SAFE)).error_code == 0


def test_a_level_may_need_others() -> None:
    harness = at("4.0-IV0")
    refused = update(harness, ("eligible.leader.replicas.version", 1, UPGRADE))
    assert "metadata.version 23" in (refused.error_message or "")
    together = update(harness, ("metadata.version", 23, UPGRADE), ("eligible.leader.replicas.version", 1, UPGRADE))
    assert together.error_code == 0


def test_turning_on_elr_settles_min_insync_replicas_first() -> None:
    harness = at("4.3", eligible_leader_replicas_version=0)
    harness.add_brokers(1, 2)
    for resource, value in (("1", "2"), ("2", "3")):
        harness.managers.replay(
            ConfigRecord(resource_type=4, resource_name=resource, name="min.insync.replicas", value=value), 0
        )
    assert update(harness, ("eligible.leader.replicas.version", 1, UPGRADE), validate_only=True).error_code == 0
    assert harness.written() == []
    assert update(harness, ("eligible.leader.replicas.version", 1, UPGRADE)).error_code == 0
    name = "min.insync.replicas"
    assert harness.written() == [
        ConfigRecord(resource_type=4, resource_name="", name=name, value="1"),
        ConfigRecord(resource_type=4, resource_name="1", name=name, value=None),
        ConfigRecord(resource_type=4, resource_name="2", name=name, value=None),
        level("eligible.leader.replicas.version", 1),
    ]
    harness.mark()
    update(harness, ("eligible.leader.replicas.version", 1, UPGRADE))
    assert harness.written() == [level("eligible.leader.replicas.version", 1)]


def test_kraft_version_is_rafts_own() -> None:
    harness = Harness()
    assert update(harness, ("kraft.version", 0, UPGRADE)).error_code == 0
    assert harness.written() == [NoOpRecord()]
    assert update(harness, ("kraft.version", 0, SAFE)).error_code == 0
    harness.managers.replay(level("kraft.version", 1), 0)
    assert "kraft.version" not in harness.managers.features.finalized_features().levels


def test_a_level_beyond_this_software_cannot_be_followed() -> None:
    harness = Harness()
    with pytest.raises(MetadataReplayError, match="supports"):
        harness.managers.replay(level("group.version", 9), 0)
    with pytest.raises(MetadataReplayError):
        harness.managers.replay(level("unheard.of", 1), 0)
