"""Connection quotas: limits on the number of connections and on their creation rate.

Every accepted socket passes `ConnectionQuotas.inc` before it is read, and `ConnectionQuotas.dec` when it is closed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from barnabas.common.clock import Clock
from barnabas.common.errors import BarnabasError
from barnabas.metrics.registry import Metrics
from barnabas.network.server.connection_limits import (
    UNLIMITED,
    ConnectionLimits,
    Resolver,
    addresses_of,
    at_least,
    canonical_address,
    resolve_host,
    resolve_overrides,
)
from barnabas.network.server.connection_rates import ConnectionRates, ListenerRates

__all__ = [
    "ConnectionLimits",
    "ConnectionQuotas",
    "ConnectionThrottledError",
    "ListenerClosedError",
    "TooManyConnectionsError",
]

_log = logging.getLogger(__name__)


class TooManyConnectionsError(BarnabasError):
    """The address has reached its maximum of connections. The socket is closed; nothing was counted."""

    def __init__(self, ip: str, count: int) -> None:
        super().__init__(f"too many connections from {ip}: the maximum is {count}")
        self.ip = ip
        self.count = count


class ConnectionThrottledError(BarnabasError):
    """The address opens connections too fast. The socket is closed after the delay; nothing was counted.

    It is not closed at once, because the client would then reconnect at once.
    """

    def __init__(self, ip: str, start_throttle_time_ms: int, throttle_time_ms: int) -> None:
        super().__init__(f"{ip} opens connections too fast: throttled for {throttle_time_ms} ms")
        self.ip = ip
        self.start_throttle_time_ms = start_throttle_time_ms
        self.throttle_time_ms = throttle_time_ms


class ListenerClosedError(BarnabasError):
    """The listener does not exist, was removed, or the broker is closing. The socket is closed; nothing was counted."""

    def __init__(self, listener: str) -> None:
        super().__init__(f"listener {listener} accepts no connections: it does not exist or is being closed")
        self.listener = listener


class ConnectionQuotas:
    """Counts the connections of one broker, and delays or rejects those over a limit.

    The limit that a new connection exceeds decides what happens to it:

        too many on the listener, or on the broker    the acceptor waits until one is closed
        too fast on the listener, or on the broker    the acceptor waits for the delay that the rates require
        too fast from one address                     ConnectionThrottledError, closed after the delay
        too many from one address                     TooManyConnectionsError, closed

    The first two share one wait; then the address is checked, its rate before its count. An acceptor serves one
    listener, so its wait delays all clients of that listener and of no other; further connections wait in the kernel's
    backlog. That suits a limit which all of them share. It would be wrong for the limits of one address, whose
    connections must not delay those of others.

    **The protected listener.** Brokers replicate over the inter-broker listener, and clients must not be able to lock
    them out. If there is any other listener, the inter-broker listener is exempt from the broker's cap and rate and
    bound only by its own. With ``max.connections=2`` and REPLICATION protected:

        EXTERNAL   inc, inc    2 of 2
        EXTERNAL   inc         waits
        REPLICATION inc        3 of 2: `max_connections_exceeded` is now true for EXTERNAL
        EXTERNAL   dec         its processor has closed the connection that was idle longest: 2 of 2; inc still waits
        EXTERNAL   dec         1 of 2: inc returns

    A listener without limits of its own uses the broker's numbers as its own. So does the protected one: here it may
    have two connections itself. Configure a higher limit if it needs more.

    **Changing limits.** Waiting acceptors apply a new cap at once. A new rate applies to the next connection: one that
    already waits keeps its delay, which is at most ``quota.window.size.seconds``. No change resets counts or
    measurements.

    **Addresses** are compared as addresses, not as text: ``::1`` equals ``0:0:0:0:0:0:0:1``, and ``::ffff:192.0.2.7``,
    which is how a dual-stack socket shows an IPv4 client, equals ``192.0.2.7``.
    """

    def __init__(
        self,
        limits: ConnectionLimits,
        clock: Clock,
        metrics: Metrics,
        resolve: Resolver = resolve_host,
    ) -> None:
        self._clock = clock
        self._resolve = resolve
        self._inter_broker_listener = limits.inter_broker_listener

        self._counts_lock = threading.Condition()
        """Guards all fields below: counts, limits, the set of listeners, and that the rate limits agree with them.
        Re-entrant. Notified when a connection was closed, a cap has changed, a listener was added or removed, or the
        quotas were closed. The locks of the metrics registry and of sensors are taken inside it, never the other way
        round: a gauge may only call methods that take no lock here (`total`, `get`, `listener_count`)."""
        self._counts: dict[str, int] = {}
        self._listener_counts: dict[str, int] = {}
        """Connections per listener, only for listeners that have any. These may differ from the open listeners: a
        removed one has connections until its processors have closed them, and its count must go down where it went
        up."""
        self._total = 0
        self._listeners: dict[str, ListenerRates] = {}
        """The listeners that accept connections."""
        self._closed = False

        self._max_per_ip = limits.max_connections_per_ip
        self._max_per_ip_overrides = resolve_overrides(limits.max_connections_per_ip_overrides, resolve)
        self._max_connections = limits.max_connections
        self._max_rate = limits.max_connection_creation_rate
        # Configs name a listener in lower case, whatever its own spelling.
        self._listener_max_connections = {name.lower(): n for name, n in limits.listener_max_connections.items()}
        self._listener_max_rate = {name.lower(): n for name, n in limits.listener_max_connection_creation_rate.items()}
        self._ip_rates: dict[str, int] = {}
        self._default_ip_rate = UNLIMITED
        self._rates = ConnectionRates(metrics, limits.quota_samples, limits.quota_window_seconds, self._max_rate)

    # ------------------------------------------------------------------------------------------------ listeners

    def add_listener(self, listener: str) -> None:
        with self._counts_lock:
            if self._closed:
                raise ListenerClosedError(listener)
            if listener not in self._listeners:
                self._listeners[listener] = self._rates.listener(listener, self._max_rate_of(listener))
            # A second listener makes the inter-broker one protected, which may release its waiting acceptor.
            self._counts_lock.notify_all()

    def remove_listener(self, listener: str) -> None:
        """Closes a listener: its acceptor gets ListenerClosedError, even while it waits."""
        with self._counts_lock:
            rates = self._listeners.pop(listener, None)
            if rates is not None:
                rates.close()
                self._counts_lock.notify_all()

    def close(self) -> None:
        """Releases every waiting acceptor with ListenerClosedError. `dec` still works."""
        with self._counts_lock:
            if self._closed:
                return
            self._closed = True
            for rates in self._listeners.values():
                rates.close()
            self._rates.close()
            self._counts_lock.notify_all()

    # ------------------------------------------------------------------------------------------------ connections

    def inc(self, listener: str, address: str, blocked: Callable[[int], None] | None = None) -> None:
        """Counts an accepted connection, after waiting for a slot.

        Runs on the acceptor's thread. If it waited, it calls `blocked` with the nanoseconds; the lock is held, so
        `blocked` must be as harmless as marking a meter. If this raises, nothing was counted, and there must be no
        `dec`.
        """
        ip = canonical_address(address)
        with self._counts_lock:
            rates = self._open_listener(listener)
            under_broker_rate = not self._protected(listener)
            self._wait_for_slot(listener, rates, under_broker_rate, blocked)
            self._record_ip(ip, rates, under_broker_rate)
            maximum = self._max_per_ip_overrides.get(ip, self._max_per_ip)
            count = self._counts.get(ip, 0)
            if count >= maximum:
                raise TooManyConnectionsError(ip, maximum)
            self._counts[ip] = count + 1
            self._listener_counts[listener] = self._listener_counts.get(listener, 0) + 1
            self._total += 1

    def dec(self, listener: str, address: str) -> None:
        """Uncounts a connection counted by `inc`, and notifies acceptors that wait for a slot."""
        ip = canonical_address(address)
        with self._counts_lock:
            # Check both before changing either: a wrong call must not corrupt the counts.
            if ip not in self._counts or listener not in self._listener_counts:
                raise ValueError(f"no connection from {ip} on listener {listener} is counted")
            _count_down(self._counts, ip)
            _count_down(self._listener_counts, listener)
            self._total -= 1
            self._counts_lock.notify_all()

    def max_connections_exceeded(self, listener: str) -> bool:
        """Whether a processor of this listener must close the connection that was idle longest.

        Called once per poll, so the common result, False, takes no lock. True costs a client its connection and is
        decided under the lock. Exactly at the cap the limit is not exceeded.
        """
        if self._total <= self._max_connections:
            return False
        with self._counts_lock:
            return self._total > self._max_connections and not self._protected(listener)

    # Each of these reads one number, which needs no lock.

    def get(self, address: str) -> int:
        """The number of connections of an address."""
        return self._counts.get(canonical_address(address), 0)

    @property
    def total(self) -> int:
        """The number of connections of the broker."""
        return self._total

    def listener_count(self, listener: str) -> int:
        return self._listener_counts.get(listener, 0)

    # ------------------------------------------------------------------------------------------------ new limits

    def update_max_connections_per_ip(self, maximum: int) -> None:
        at_least(0, "max.connections.per.ip", maximum)
        with self._counts_lock:
            self._max_per_ip = maximum
        _log.info("max.connections.per.ip is now %d", maximum)

    def update_max_connections_per_ip_overrides(self, overrides: Mapping[str, int]) -> None:
        """Replaces all overrides. If a host name cannot be resolved, it raises and keeps the old ones."""
        for maximum in overrides.values():
            at_least(0, "max.connections.per.ip.overrides", maximum)
        resolved = resolve_overrides(overrides, self._resolve)
        with self._counts_lock:
            self._max_per_ip_overrides = resolved
        _log.info("max.connections.per.ip.overrides is now %s", dict(overrides))

    def update_broker_max_connections(self, maximum: int) -> None:
        at_least(1, "max.connections", maximum)
        with self._counts_lock:
            self._max_connections = maximum
            self._counts_lock.notify_all()
        _log.info("max.connections is now %d", maximum)

    def update_listener_max_connections(self, listener: str, maximum: int | None) -> None:
        """Sets the cap of one listener; None removes it, and the broker's cap applies."""
        with self._counts_lock:
            _set_or_remove(self._listener_max_connections, listener, "max.connections", maximum)
            self._counts_lock.notify_all()

    def update_broker_max_connection_rate(self, rate: int) -> None:
        at_least(1, "max.connection.creation.rate", rate)
        with self._counts_lock:
            self._max_rate = rate
            self._rates.broker.update(rate)
            self._update_listener_rates()
        _log.info("max.connection.creation.rate is now %d", rate)

    def update_listener_max_connection_rate(self, listener: str, rate: int | None) -> None:
        """Sets the rate of one listener; None removes it, and the broker's rate applies."""
        with self._counts_lock:
            _set_or_remove(self._listener_max_rate, listener, "max.connection.creation.rate", rate)
            self._update_listener_rates()

    def update_ip_connection_rate(self, ip: str | None, rate: int | None) -> None:
        """Sets the rate of one address, or the default for all others; None removes it."""
        if rate is not None:
            at_least(0, "connection_creation_rate", rate)
        addresses = None if ip is None else addresses_of(ip, self._resolve)
        with self._counts_lock:
            if addresses is None:
                self._default_ip_rate = UNLIMITED if rate is None else rate
                self._rates.update_all_ips(self.connection_rate_for_ip)
            else:
                for address in addresses:
                    if rate is None:
                        self._ip_rates.pop(address, None)
                    else:
                        self._ip_rates[address] = rate
                    self._rates.update_ip(address, self.connection_rate_for_ip(address))
        _log.info("The connection rate of %s is now %s", ip or "every address", "the default" if rate is None else rate)

    def connection_rate_for_ip(self, ip: str) -> int:
        """Returns the limit of an address, in connections per second."""
        with self._counts_lock:
            return self._ip_rates.get(canonical_address(ip), self._default_ip_rate)

    # ------------------------------------------------------------------------------------------------ under the lock

    def _open_listener(self, listener: str) -> ListenerRates:
        rates = self._listeners.get(listener)
        if rates is None or self._closed:
            raise ListenerClosedError(listener)
        return rates

    def _protected(self, listener: str) -> bool:
        """Whether the listener is protected. A sole inter-broker listener also serves clients and is not."""
        return listener == self._inter_broker_listener and len(self._listeners) > 1

    def _max_rate_of(self, listener: str) -> int:
        return self._listener_max_rate.get(listener.lower(), self._max_rate)

    def _update_listener_rates(self) -> None:
        for listener, rates in self._listeners.items():
            rates.connections.update(self._max_rate_of(listener))

    def _slot_available(self, listener: str) -> bool:
        own = self._listener_max_connections.get(listener.lower(), self._max_connections)
        if self._listener_counts.get(listener, 0) >= own:
            return False
        return self._protected(listener) or self._total < self._max_connections

    def _wait_for_slot(
        self, listener: str, rates: ListenerRates, under_broker_rate: bool, blocked: Callable[[int], None] | None
    ) -> None:
        delay_ms = self._record_connection(rates, under_broker_rate)
        if not delay_ms and self._slot_available(listener):
            return
        # Monotonic clock: a system clock set back by an hour must not add an hour to the delay.
        start_ns = self._clock.nanoseconds()
        end_ns = start_ns + delay_ms * 1_000_000
        try:
            while True:
                remaining_ns = end_ns - self._clock.nanoseconds()
                if remaining_ns <= 0 and self._slot_available(listener):
                    return
                self._clock.wait(self._counts_lock, remaining_ns / 1_000_000 if remaining_ns > 0 else None)
                # If the listener was removed and added again, this acceptor belongs to the removed one.
                if self._open_listener(listener) is not rates:
                    raise ListenerClosedError(listener)
        finally:
            if blocked is not None:
                blocked(self._clock.nanoseconds() - start_ns)

    def _record_connection(self, rates: ListenerRates, under_broker_rate: bool) -> int:
        """Records the connection; returns the longer of the broker's and the listener's delay."""
        now_ms = self._clock.milliseconds()
        delay_ms = self._rates.broker.record(now_ms) if under_broker_rate else 0
        delay_ms = max(delay_ms, rates.connections.record(now_ms))
        if delay_ms:
            rates.throttle_time.record(delay_ms, now_ms)
        return delay_ms

    def _record_ip(self, ip: str, rates: ListenerRates, under_broker_rate: bool) -> None:
        """Records the connection for its address; undoes all records of it if the address is too fast.

        Otherwise an address that is rejected again and again would use up the rates that it shares with all others.
        """
        limit = self._ip_rates.get(ip, self._default_ip_rate)
        if limit >= UNLIMITED:
            return
        now_ms = self._clock.milliseconds()
        ip_rate = self._rates.ip(ip, limit)
        delay_ms = ip_rate.record(now_ms)
        if not delay_ms:
            return
        ip_rate.unrecord(now_ms)
        if under_broker_rate:
            self._rates.broker.unrecord(now_ms)
        rates.connections.unrecord(now_ms)
        rates.ip_throttle_time.record(delay_ms, now_ms)
        raise ConnectionThrottledError(ip, now_ms, delay_ms)

    def __repr__(self) -> str:
        return f"ConnectionQuotas({self._total} connections, {sorted(self._listeners)})"


def _set_or_remove(settings: dict[str, int], listener: str, setting: str, value: int | None) -> None:
    if value is None:
        settings.pop(listener.lower(), None)
    else:
        at_least(1, f"listener.name.{listener.lower()}.{setting}", value)
        settings[listener.lower()] = value
    _log.info("%s of listener %s is now %s", setting, listener, "the broker's" if value is None else value)


def _count_down(counts: dict[str, int], key: str) -> None:
    if counts[key] == 1:
        del counts[key]
    else:
        counts[key] -= 1
