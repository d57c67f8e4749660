"""Makes the authorizer of a node from its class name, and keeps its ACLs up to date with the metadata."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, cast

from barnabas.broker.config.dynamic_broker_config import DynamicBrokerConfig
from barnabas.broker.config.kafka_config import KafkaConfig
from barnabas.broker.config.reconfigurables import DynamicAuthorizer, ReconfigurableAuthorizer
from barnabas.common.config_def import ConfigError
from barnabas.metadata.acls import AccessControlEntry as EntryOfMetadata
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.publisher import LoaderManifest, MetadataPublisher, SnapshotManifest
from barnabas.security.acl import AclBinding
from barnabas.security.authorizer import (
    Authorizer,
)

if TYPE_CHECKING:
    from barnabas.security.standard_authorizer import StandardAuthorizer

T = TypeVar("T")
R = TypeVar("R")


def make_authorizer(config: KafkaConfig) -> Authorizer | None:
    """Makes the Python class that ``authorizer.class.name`` names; None if it is empty: everything is allowed."""
    name = config.authorizer_class_name
    if name is None:
        return None
    module, _, attribute = name.rpartition(".")
    try:
        found: Callable[[], Any] = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError.invalid("authorizer.class.name", name, f"there is no such class: {error}") from None
    authorizer: Authorizer = found()
    missing = [method for method in ("start", "authorize", "acls", "close") if not hasattr(authorizer, method)]
    if missing:
        raise ConfigError.invalid("authorizer.class.name", name, f"an authorizer has {', '.join(missing)}")
    configure: Callable[[Mapping[str, str]], object] | None = getattr(authorizer, "configure", None)
    if configure is not None:
        configure(config.properties)
    return authorizer


def add_authorizer(authorizer: Authorizer | None, dynamic: DynamicBrokerConfig) -> None:
    """Subscribes an authorizer to changes of its settings, if it supports them."""
    if authorizer is not None and hasattr(authorizer, "reconfigurable_configs"):
        dynamic.add_reconfigurable(DynamicAuthorizer(cast("ReconfigurableAuthorizer", authorizer)))


class AclPublisher(MetadataPublisher):
    """Passes the cluster's ACLs to an authorizer that keeps them in memory."""

    def __init__(self, node_id: int, node_type: str, authorizer: StandardAuthorizer) -> None:
        self._node_id = node_id
        self._node_type = node_type
        self._authorizer = authorizer
        self._complete = False
        self.loaded: Future[None] = Future()
        """Done when the authorizer has its first ACLs."""

    @property
    def name(self) -> str:
        return f"AclPublisher {self._node_type} id={self._node_id}"

    def on_metadata_update(self, delta: MetadataDelta, new_image: MetadataImage, manifest: LoaderManifest) -> None:
        changed = delta.acls is not None
        if not self._complete or (changed and isinstance(manifest, SnapshotManifest)):
            self._authorizer.load_snapshot(
                {acl_id: binding_of(entry) for acl_id, entry in new_image.acls.entries.items()}
            )
        elif delta.acls is not None:
            self._authorizer.apply_changes(
                [(acl_id, None if entry is None else binding_of(entry)) for acl_id, entry in delta.acls.changes.items()]
            )
        if not self._complete:
            # Until now only super users were authorized, because the ACLs were not loaded.
            self._complete = True
            self._authorizer.complete_initial_load()
            self.loaded.set_result(None)

    def close(self) -> None:
        self.loaded.cancel()


def binding_of(entry: EntryOfMetadata) -> AclBinding:
    """Converts an ACL entry of the metadata, which has the protocol's numbers, to the authorizer's type."""
    return AclBinding.from_codes(
        resource_type=entry.resource_type,
        resource_name=entry.resource_name,
        pattern_type=entry.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission_type,
    )
