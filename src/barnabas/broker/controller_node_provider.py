"""Who is the active controller, and where."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.publisher import LoaderManifest, MetadataPublisher
from barnabas.network.node import Node
from barnabas.raft.client import LeaderAndEpoch


class ControllerNodeProvider(MetadataPublisher):
    """The node that leads the metadata log, at its address on the controller listener; None while nobody does.

    Call it to ask. Two sources tell it:

    - *Who leads*: ``leader_id`` if there is such a function, as a broker's own Raft client has it; otherwise what the
      metadata loader last said (:meth:`on_controller_change`). The loader tells a new publisher nothing before it has
      caught up, and a broker must register before that, so the first is what a starting broker needs.
    - *Where*: the voters of ``controller.quorum.voters``, and above these the controllers that have registered
      (KIP-919), as those know their own ports. Where the controller of this very node is, it knows best: what it has
      registered may be from before a restart, on another port, and it has to be reached to be told of the new one.

    Whoever waits for a controller to be elected can be told (:meth:`add_listener`), so that no time is lost by asking
    again and again.
    """

    def __init__(
        self,
        voters: Mapping[int, Node],
        listener_name: str | None = None,
        leader_id: Callable[[], int | None] | None = None,
    ) -> None:
        self._voters = dict(voters)
        self._listener_name = listener_name
        self._ask_leader_id = leader_id
        self._seen: object = None
        """The registrations that ``_registered`` was made from; touched by the loader's thread only."""
        self._lock = threading.Lock()
        """Guards the fields below. Listeners are called without it."""
        self._own: Node | None = None
        self._told_leader_id: int | None = None
        self._registered: dict[int, Node] = {}
        self._listeners: list[Callable[[], None]] = []

    def __call__(self) -> Node | None:
        with self._lock:
            leader_id = self._told_leader_id if self._ask_leader_id is None else self._ask_leader_id()
            if leader_id is None:
                return None
            if self._own is not None and self._own.id == leader_id:
                return self._own
            return self._registered.get(leader_id) or self._voters.get(leader_id)

    def set_own(self, node: Node) -> None:
        """The controller of this node is at this address: one that listens on port 0 learns its port late."""
        with self._lock:
            self._own = node
        self.changed()

    def add_listener(self, listener: Callable[[], None]) -> None:
        """``listener`` is called, on any thread, when the answer may be another one than before."""
        with self._lock:
            self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[], None]) -> None:
        with self._lock:
            self._listeners.remove(listener)

    def changed(self) -> None:
        """Has everybody ask again."""
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener()

    # -- as a publisher

    @property
    def name(self) -> str:
        return "ControllerNodeProvider"

    def on_metadata_update(self, delta: MetadataDelta, new_image: MetadataImage, manifest: LoaderManifest) -> None:  # noqa: ARG002
        controllers = new_image.cluster.controllers
        if self._listener_name is None or controllers is self._seen:  # as in nearly every update
            return
        self._seen = controllers
        registered = {
            controller.id: Node(controller.id, endpoint.host, endpoint.port)
            for controller in controllers.values()
            if (endpoint := controller.listeners.get(self._listener_name)) is not None
        }
        with self._lock:
            if registered == self._registered:
                return
            self._registered = registered
        self.changed()

    def on_controller_change(self, leader_and_epoch: LeaderAndEpoch) -> None:
        with self._lock:
            self._told_leader_id = leader_and_epoch.leader_id
        self.changed()

    def __repr__(self) -> str:
        return f"ControllerNodeProvider({self()})"
