"""How the lifecycle manager hears of metadata."""

from __future__ import annotations

from concurrent.futures import Future

from barnabas.broker.broker_lifecycle_manager import BrokerLifecycleManager
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.publisher import LoaderManifest, MetadataPublisher


class LifecyclePublisher(MetadataPublisher):
    """Says how far the metadata are applied, so that a starting broker need not ask itself every few milliseconds.

    To be installed as the last publisher: what it reports to the controller is a promise that everything on this broker
    has heard of the metadata up to there.
    """

    def __init__(self, broker_id: int, lifecycle: BrokerLifecycleManager) -> None:
        self._broker_id = broker_id
        self._lifecycle = lifecycle
        self.unfenced_future: Future[None] = Future()
        """Done when the metadata on this broker say that it is there, as registered by this very process."""

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
