"""The authorizer of a node: made from a name, kept up to date from the metadata."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from barnabas.broker.config.kafka_config import KafkaConfig
from barnabas.broker.node.authorizers import AclPublisher, binding_of, make_authorizer
from barnabas.common.config_def import ConfigError
from barnabas.common.identifiers import Uuid
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import EMPTY_IMAGE, MetadataImage
from barnabas.metadata.provenance import MetadataProvenance
from barnabas.metadata.publisher import LogDeltaManifest, SnapshotManifest
from barnabas.protocol.internal.metadata import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from barnabas.raft.client import LeaderAndEpoch
from barnabas.security.acl import AclOperation, AclPermissionType, PatternType, ResourceType
from barnabas.security.standard_authorizer import StandardAuthorizer


def config_for(name: str) -> KafkaConfig:
    return KafkaConfig.for_zero_configuration(
        Path("data"), overrides={"authorizer.class.name": name, "super.users": "User:admin"}
    )


class Configured:
    """An authorizer that remembers its settings."""

    settings: Mapping[str, str]

    def configure(self, settings: Mapping[str, str]) -> None:
        self.settings = settings

    def start(self, info: object) -> dict[str, object]:
        return {}

    def authorize(self, context: object, actions: object) -> list[object]:
        return []

    def acls(self, pattern: object) -> list[object]:
        return []

    def close(self) -> None:
        pass


class Half:
    def start(self) -> None:
        pass


def test_without_a_name_all_is_allowed() -> None:
    assert make_authorizer(KafkaConfig.for_zero_configuration(Path("data"))) is None


def test_kafkas_own_is_ours() -> None:
    made = make_authorizer(config_for("org.apache.kafka.metadata.authorizer.StandardAuthorizer"))
    assert isinstance(made, StandardAuthorizer)


def test_any_class_of_python_will_do_and_gets_the_settings() -> None:
    made: object = make_authorizer(config_for(f"{__name__}.Configured"))
    assert isinstance(made, Configured)
    assert made.settings["super.users"] == "User:admin"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere.Authorizer", "there is no such class"),
        (f"{__name__}.Missing", "there is no such class"),
        ("Authorizer", "there is no such class"),
        (f"{__name__}.Half", "an authorizer has authorize, acls, close"),
    ],
)
def test_what_is_no_authorizer_is_refused(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_authorizer(config_for(name))


# ---------------------------------------------------------------------------------------------------- the publisher


class Told(StandardAuthorizer):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[object] = []

    def load_snapshot(self, acls: Mapping[bytes, object]) -> None:  # type: ignore[override]
        self.told.append(("snapshot", sorted(acls)))

    def apply_changes(self, changes: object) -> None:
        assert isinstance(changes, list)
        self.told.append(("changes", [(acl_id, binding is None) for acl_id, binding in changes]))

    def complete_initial_load(self, error: BaseException | None = None) -> None:
        assert error is None
        self.told.append("complete")


ONE, TWO = Uuid(bytes(15) + b"1"), Uuid(bytes(15) + b"2")


def entry(acl_id: Uuid) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=acl_id, resource_type=2, resource_name="orders", pattern_type=3, principal="User:alice", host="*",
        operation=3, permission_type=3,
    )  # fmt: skip


class Metadata:
    """Images that follow one another, published."""

    def __init__(self, publisher: AclPublisher) -> None:
        self.image: MetadataImage = EMPTY_IMAGE
        self._publisher = publisher

    def publish(self, *records: object, snapshot: bool = False) -> None:
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)  # type: ignore[arg-type]
        provenance = MetadataProvenance(self.image.offset + 1, 1, 0, True)
        self.image = delta.apply(provenance)
        manifest = (
            SnapshotManifest(provenance, 0) if snapshot else LogDeltaManifest(provenance, LeaderAndEpoch(1, 1), 1, 0, 1)
        )
        self._publisher.on_metadata_update(delta, self.image, manifest)


def test_the_first_image_opens_the_doors_and_changes_follow() -> None:
    authorizer = Told()
    publisher = AclPublisher(1, "broker", authorizer)
    assert publisher.name == "AclPublisher broker id=1"
    metadata = Metadata(publisher)
    metadata.publish(entry(ONE))
    assert authorizer.told == [("snapshot", [ONE]), "complete"]
    authorizer.told.clear()
    metadata.publish()
    assert authorizer.told == [], "nothing about ACLs, nothing to tell"
    metadata.publish(entry(TWO), RemoveAccessControlEntryRecord(id=ONE))
    assert authorizer.told == [("changes", [(TWO, False), (ONE, True)])]
    authorizer.told.clear()
    metadata.publish(RemoveAccessControlEntryRecord(id=TWO), snapshot=True)
    assert authorizer.told == [("snapshot", [])]


def test_numbers_of_the_protocol_become_names() -> None:
    authorizer = Told()
    metadata = Metadata(AclPublisher(1, "broker", authorizer))
    metadata.publish(entry(ONE))
    (found,) = metadata.image.acls.entries.values()
    binding = binding_of(found)
    assert (binding.pattern.resource_type, binding.pattern.name) == (ResourceType.TOPIC, "orders")
    assert binding.pattern.pattern_type is PatternType.LITERAL
    assert (binding.entry.principal, binding.entry.host) == ("User:alice", "*")
    assert (binding.entry.operation, binding.entry.permission_type) == (AclOperation.READ, AclPermissionType.ALLOW)
