"""Opens and closes the listeners of a running broker, and keeps the controller informed of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barnabas.broker.config.kafka_config import KafkaConfig
from barnabas.broker.config.listeners import resolved
from barnabas.broker.node.request_serving import RequestServing
from barnabas.common.config_def import ConfigError
from barnabas.network.server.acceptor import open_socket
from barnabas.network.server.endpoint import Endpoint


class BrokerListeners:
    """A `barnabas.broker.config.reconfigurables.ListenerHost`."""

    def __init__(
        self,
        serving: RequestServing,
        advertised: Sequence[Endpoint],
        register: Callable[[Sequence[Endpoint]], object],
    ) -> None:
        """``register`` sends the advertised listeners to the controller; it does not wait."""
        self._serving = serving
        self._register = register
        self.advertised = tuple(advertised)
        """The advertised listeners, with their actual ports. Replaced as a whole."""

    def validate(self, new: KafkaConfig) -> None:
        if self._serving.security is not None:
            self._serving.security.validate(new)

    def validate_new(self, new: KafkaConfig, endpoints: Sequence[Endpoint]) -> None:
        if self._serving.security is not None:
            self._serving.security.validate_new(new, endpoints)
        for endpoint in endpoints:
            if not self._serving.is_open(endpoint.listener_name):
                try:
                    open_socket(endpoint, new.socket_server()).close()
                except OSError as error:
                    raise ConfigError(error.strerror or str(error), name="listeners") from None

    def reconfigure(self, new: KafkaConfig) -> None:
        if self._serving.security is not None:
            self._serving.security.reconfigure(new)

    def open_listeners(self, new: KafkaConfig, endpoints: Sequence[Endpoint]) -> None:
        self._serving.add_listeners(new, endpoints)

    def close_listeners(self, names: Sequence[str]) -> None:
        self._serving.remove_listeners(names)

    def advertise(self, new: KafkaConfig) -> None:
        server = self._serving.socket_server
        assert server is not None
        open_ones = [one for one in new.advertised_listeners if self._serving.is_open(one.listener_name)]
        advertised = resolved(open_ones, server.bound_port)
        if advertised != self.advertised:
            self.advertised = advertised
            self._register(advertised)
