"""Finds the active controller and its address."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.publisher import LoaderManifest, MetadataPublisher
from barnabas.network.client.node import Node
from barnabas.raft.client import LeaderAndEpoch


class ControllerNodeProvider(MetadataPublisher):
    """Returns, when called, the leader of the metadata log with its controller listener address, or None.

    It has two sources:

    - *Leader id*: ``leader_id`` if given, as from a broker's own Raft client; otherwise the metadata loader's last
      value (:meth:`on_controller_change`). The loader calls a new publisher only after it has caught up, but a broker
      must register before that, so a starting broker needs ``leader_id``.
    - *Address*: the voters of ``controller.quorum.voters``; registered controllers (KIP-919) override them, as they
      know their own ports. The address of this node's own controller overrides both: its registration may date from
      before a restart, with another port, and it must be reached to register the new one.

    :meth:`add_listener` notifies waiters when a controller is elected, so that they need not poll.
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
        """The registrations that ``_registered`` was made from; accessed by the loader's thread only."""
        self._lock = threading.Lock()
        """Guards the fields below. Not held while listeners are called."""
        self._own: Node | None = None
        self._known_leader_id: int | None = None
        self._registered: dict[int, Node] = {}
        self._listeners: list[Callable[[], None]] = []

    def __call__(self) -> Node | None:
        with self._lock:
            leader_id = self._known_leader_id if self._ask_leader_id is None else self._ask_leader_id()
            if leader_id is None:
                return None
            if self._own is not None and self._own.id == leader_id:
                return self._own
            return self._registered.get(leader_id) or self._voters.get(leader_id)

    def set_own(self, node: Node) -> None:
        """Sets the address of this node's own controller: with port 0, the port is known late."""
        with self._lock:
            self._own = node
        self.changed()

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Adds a listener, called on any thread when the active controller may have changed."""
        with self._lock:
            self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[], None]) -> None:
        with self._lock:
            self._listeners.remove(listener)

    def changed(self) -> None:
        """Notifies all listeners."""
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
        if self._listener_name is None or controllers is self._seen:  # true for nearly every update
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
            self._known_leader_id = leader_and_epoch.leader_id
        self.changed()

    def __repr__(self) -> str:
        return f"ControllerNodeProvider({self()})"
