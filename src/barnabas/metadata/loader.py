"""The metadata loader: follows the metadata log and calls the publishers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.metadata.batch_loader import FaultHandler, MetadataBatch, MetadataBatchLoader
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.errors import MetadataReplayError
from barnabas.metadata.image import EMPTY_IMAGE, MetadataImage
from barnabas.metadata.loader_metrics import MetadataLoaderMetrics
from barnabas.metadata.provenance import NOWHERE, MetadataProvenance
from barnabas.metadata.publisher import (
    NO_CONTROLLER,
    LoaderManifest,
    MetadataPublisher,
    SnapshotManifest,
)
from barnabas.protocol.internal.framing import MetadataRecord
from barnabas.raft.client import LeaderAndEpoch

if TYPE_CHECKING:
    from barnabas.metadata.event_executor import EventExecutor

log = logging.getLogger(__name__)


class MetadataLoader:
    """Builds images from committed records, and passes each image to all publishers.

    Raft calls the ``handle_...`` methods in order from its thread; they only queue an event. The executor runs one
    event at a time, so the loader needs no lock, and publishers never run concurrently.

    Publishers are called in the order in which they were installed: the first one, for example the cache, has the new
    image before the others are called. If one raises an error, the next ones are still called, and it gets the next
    update.

    *Catching up.* A starting node replays a log that may be long. Its publishers would see topics that were deleted
    years ago. So they are not called until the loader has reached the high watermark once; then they get one delta with
    everything. A publisher that is installed later gets the same.

    *Metadata that cannot be loaded* (a record that cannot be decoded or replayed, a gap between batches) stops the
    loader: no publisher is called any more, and ``on_load_fault``, which ends the node, is called. With an incomplete
    image the broker would set aside the logs of missing topics as stray.

    ``high_watermark`` returns the high watermark of the log, None while it is unknown. It is checked after every event;
    if it can advance without one, :meth:`high_watermark_advanced` triggers a check.
    """

    def __init__(
        self,
        executor: EventExecutor,
        high_watermark: Callable[[], int | None],
        on_fault: FaultHandler,
        clock: Clock = SYSTEM_CLOCK,
        metrics: MetadataLoaderMetrics | None = None,
        *,
        on_load_fault: FaultHandler,
    ) -> None:
        """``on_fault`` gets errors of publishers; ``on_load_fault`` is called once if metadata cannot be loaded."""
        self._executor = executor
        self._high_watermark = high_watermark
        self._fault_handler = on_fault
        self._load_fault_handler = on_load_fault
        self._clock = clock
        self.metrics = metrics or MetadataLoaderMetrics()
        # Only events change the following.
        self._batches = MetadataBatchLoader(self._publish, self._on_load_fault, clock)
        self._image = EMPTY_IMAGE
        self._last_applied = NOWHERE
        self._leader_and_epoch = NO_CONTROLLER
        self._catching_up = True
        self._new_publishers: dict[str, MetadataPublisher] = {}
        """Installed publishers without their first update."""
        self._publishers: dict[str, MetadataPublisher] = {}
        self._failed_publishers: list[MetadataPublisher] = []
        """Publishers that failed at their first update and get no further ones. They are closed, too."""
        self._failed = False
        """Whether loading has failed. Raft then does not get its reader back, so it sends nothing more."""
        self._closed = False

    # -- for any thread

    @property
    def image(self) -> MetadataImage:
        """The latest image, published or not."""
        return self._image

    @property
    def last_applied(self) -> MetadataProvenance:
        """The last image that all publishers have processed: a broker reports it in its heartbeats."""
        return self._last_applied

    def handle_commit(self, batches: Iterable[MetadataBatch]) -> None:
        """Queues committed batches in order. They may be decoded while they are iterated over; see :func:`_close`."""
        self._enqueue(lambda: self._commit(batches), lambda: _close(batches))

    def handle_load_snapshot(self, provenance: MetadataProvenance, records: Iterable[MetadataRecord]) -> None:
        """Queues a snapshot that replaces everything: the node was too far behind, or has just started."""
        self._enqueue(lambda: self._load_snapshot(provenance, records), lambda: _close(records))

    def handle_leader_change(self, leader_and_epoch: LeaderAndEpoch) -> None:
        self._enqueue(lambda: self._change_leader(leader_and_epoch))

    def high_watermark_advanced(self) -> None:
        """Checks whether the loader has caught up."""
        self._enqueue(self._initialize_new_publishers)

    def install_publishers(self, publishers: Sequence[MetadataPublisher]) -> Future[None]:
        """Adds publishers after the existing ones. The future completes when they are added, before they are called."""
        return self._submit(lambda: self._install(publishers))

    def remove_and_close_publisher(self, publisher: MetadataPublisher) -> Future[None]:
        return self._submit(lambda: self._remove(publisher))

    def close(self) -> Future[None]:
        """Closes all publishers in order, after the queued events. Later events have no effect."""
        return self._submit(self._shut_down)

    # -- events

    def _commit(self, batches: Iterable[MetadataBatch]) -> None:
        try:
            for batch in batches:
                if batch.base_offset != self._batches.next_offset:
                    raise MetadataReplayError(
                        f"a batch at offset {batch.base_offset} does not follow offset {self._batches.next_offset - 1}"
                    )
                self._batches.load_batch(batch, self._leader_and_epoch)
                if self._failed:
                    return
            self._batches.maybe_flush(self._leader_and_epoch)
        except Exception as error:  # noqa: BLE001 - decoding happens here, so any error is possible
            self._on_load_fault(f"cannot load a commit on top of offset {self._image.offset}", error)
        finally:
            _close(batches)
        self._initialize_new_publishers()

    def _load_snapshot(self, provenance: MetadataProvenance, records: Iterable[MetadataRecord]) -> None:
        started = self._clock.nanoseconds()
        self.metrics.snapshots_loaded += 1
        name = provenance.snapshot_name
        try:
            delta = MetadataDelta(self._image)
            for index, record in enumerate(records):
                try:
                    delta.replay(record)
                except Exception as error:  # noqa: BLE001 - as in the batch loader
                    self._on_load_fault(f"cannot replay record {index} of snapshot {name}", error)
                    return
            delta.finish_snapshot()
            image = delta.apply(provenance)
        except Exception as error:  # noqa: BLE001 - as above
            self._on_load_fault(f"cannot load snapshot {name}", error)
            return
        finally:
            _close(records)
        manifest = SnapshotManifest(provenance, self._clock.nanoseconds() - started)
        log.info("Loaded snapshot %s in %d us", name, manifest.elapsed_ns // 1000)
        self._batches.reset_to_image(image)
        self._publish(delta, image, manifest)
        self._initialize_new_publishers()

    def _change_leader(self, leader_and_epoch: LeaderAndEpoch) -> None:
        self._leader_and_epoch = leader_and_epoch
        for publisher in list(self._publishers.values()):
            try:
                publisher.on_controller_change(leader_and_epoch)
            except Exception as error:  # noqa: BLE001 - must not affect other publishers
                self._on_fault(f"publisher {publisher.name} failed on the controller change {leader_and_epoch}", error)
        self.metrics.current_controller_id = -1 if leader_and_epoch.leader_id is None else leader_and_epoch.leader_id
        self._initialize_new_publishers()

    def _install(self, publishers: Sequence[MetadataPublisher]) -> None:
        taken = {*self._publishers, *self._new_publishers, *(publisher.name for publisher in self._failed_publishers)}
        for publisher in publishers:
            if publisher.name in taken:
                raise ValueError(f"publisher {publisher.name} is already installed")
            taken.add(publisher.name)
        self._new_publishers.update((publisher.name, publisher) for publisher in publishers)
        self._initialize_new_publishers()

    def _remove(self, publisher: MetadataPublisher) -> None:
        for installed in (self._publishers, self._new_publishers):
            if installed.get(publisher.name) is publisher:
                del installed[publisher.name]
                break
        else:
            if publisher not in self._failed_publishers:
                raise ValueError(f"publisher {publisher.name} is not installed")
            self._failed_publishers.remove(publisher)
        self._close_publisher(publisher)

    def _shut_down(self) -> None:
        self._closed = True
        for publisher in [
            *self._new_publishers.values(),
            *self._publishers.values(),
            *self._failed_publishers,
        ]:
            self._close_publisher(publisher)
        self._new_publishers.clear()
        self._publishers.clear()
        self._failed_publishers.clear()
        self.metrics.close()

    # -- publishing

    def _publish(self, delta: MetadataDelta, image: MetadataImage, manifest: LoaderManifest) -> None:
        if self._failed:
            return
        self._image = image
        if self._still_catching_up():
            return
        for publisher in list(self._publishers.values()):
            try:
                publisher.on_metadata_update(delta, image, manifest)
            except Exception as error:  # noqa: BLE001 - must not affect other publishers
                self._on_fault(f"publisher {publisher.name} failed on the image up to offset {image.offset}", error)
        self._note_applied(image)

    def _initialize_new_publishers(self) -> None:
        """Passes everything to new publishers, once the loader has caught up."""
        if self._failed or not self._new_publishers or self._still_catching_up():
            return
        image = self._image
        started = self._clock.nanoseconds()
        delta = MetadataDelta.of_everything(image)
        manifest = SnapshotManifest(image.provenance, self._clock.nanoseconds() - started)
        while self._new_publishers:
            name = next(iter(self._new_publishers))
            publisher = self._new_publishers.pop(name)
            log.info("Publisher %s starts with the image at offset %d", name, image.offset)
            try:
                publisher.on_metadata_update(delta, image, manifest)
                publisher.on_controller_change(self._leader_and_epoch)
            except Exception as error:  # noqa: BLE001 - must not affect other publishers
                self._failed_publishers.append(publisher)
                self._on_fault(f"publisher {name} failed on its first image, up to offset {image.offset}", error)
            else:
                self._publishers[name] = publisher
        self._note_applied(image)

    def _still_catching_up(self) -> bool:
        if self._catching_up:
            high_watermark = self._high_watermark()
            if high_watermark is None or self._image.offset < high_watermark - 1 or not self._batches.has_seen_record:
                log.debug("At offset %d, catching up to high watermark %s", self._image.offset, high_watermark)
                return True
            log.info("Caught up with the metadata log at offset %d", self._image.offset)
            self._catching_up = False
        return False

    def _note_applied(self, image: MetadataImage) -> None:
        self._last_applied = image.provenance
        self.metrics.record_features(image.features)

    # -- helpers

    def _enqueue(self, event: Callable[[], None], otherwise: Callable[[], None] = lambda: None) -> None:
        def run() -> None:
            if self._closed:
                otherwise()
            elif not self._failed:
                event()

        self._executor.execute(run)

    def _submit(self, event: Callable[[], None]) -> Future[None]:
        future: Future[None] = Future()

        def run() -> None:
            try:
                if self._closed:
                    raise RuntimeError("the metadata loader is closed")
                event()
            except Exception as error:  # noqa: BLE001 - passed to the caller's future
                future.set_exception(error)
            else:
                future.set_result(None)

        self._executor.execute(run)
        return future

    def _on_fault(self, what: str, error: BaseException) -> None:
        self.metrics.faults += 1
        self._fault_handler(what, error)

    def _on_load_fault(self, what: str, error: BaseException) -> None:
        if self._failed:
            return  # the batch loader continues with the next record
        self._failed = True
        self.metrics.faults += 1
        self._load_fault_handler(what, error)

    def _close_publisher(self, publisher: MetadataPublisher) -> None:
        try:
            publisher.close()
        except Exception as error:  # noqa: BLE001 - the others must be closed too
            self._on_fault(f"cannot close publisher {publisher.name}", error)


def _close(source: object) -> None:
    """Closes the source of batches or records, if it can be closed, like a generator."""
    close = getattr(source, "close", None)
    if close is not None:
        close()
