"""Reports applied metadata to the lifecycle manager."""

from __future__ import annotations

from concurrent.futures import Future

from barnabas.broker.to_controller.broker_lifecycle_manager import BrokerLifecycleManager
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.publisher import LoaderManifest, MetadataPublisher


class LifecyclePublisher(MetadataPublisher):
    """Reports the applied metadata offset, so that a starting broker need not poll every few milliseconds.

    Must be installed as the last publisher: the offset reported to the controller means that every part of this broker
    has applied the metadata up to there.
    """

    def __init__(self, broker_id: int, lifecycle: BrokerLifecycleManager) -> None:
        self._broker_id = broker_id
        self._lifecycle = lifecycle
        self.unfenced_future: Future[None] = Future()
        """Done when the metadata on this broker show it unfenced, with the registration of this process."""

    @property
    def name(self) -> str:
        return "LifecyclePublisher"

    def on_metadata_update(self, delta: MetadataDelta, new_image: MetadataImage, manifest: LoaderManifest) -> None:  # noqa: ARG002
        self._lifecycle.metadata_applied(new_image.offset)
        if self.unfenced_future.done():
            return
        broker = new_image.cluster.brokers.get(self._broker_id)
        if broker is not None and not broker.fenced and broker.epoch == self._lifecycle.broker_epoch:
            self.unfenced_future.set_result(None)
