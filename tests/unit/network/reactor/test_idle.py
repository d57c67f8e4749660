"""Which connection has been idle longest, and since when that is too long."""

from __future__ import annotations

import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.network.reactor.idle import IdleExpiryManager

pytestmark = pytest.mark.mechanism("N18")

MS = 1_000_000


class Connection:
    """Notes when it was last active."""

    def __init__(self, name: int) -> None:
        self.name = name
        self.last_active_ns = 0

    def __repr__(self) -> str:
        return f"Connection({self.name})"


def make(count: int, max_idle_ms: int = 10) -> tuple[IdleExpiryManager[Connection], list[Connection]]:
    manager: IdleExpiryManager[Connection] = IdleExpiryManager(max_idle_ms, 0)
    connections = [Connection(number) for number in range(count)]
    for connection in connections:
        manager.add(connection, 0)
    return manager, connections


def test_the_least_recently_active_is_closed_first_and_one_at_a_time() -> None:
    manager, (a, b, c) = make(3)
    a.last_active_ns, b.last_active_ns, c.last_active_ns = 3 * MS, 1 * MS, 2 * MS
    assert manager.poll_expired(11 * MS) is None, "exactly that long is not too long"
    closed = []
    while (expired := manager.poll_expired(30 * MS)) is not None:
        closed.append(expired)
        manager.remove(expired)
    assert closed == [b, c, a]
    assert len(manager) == 0
    assert manager.poll_expired(100 * MS) is None


def test_a_connection_that_is_active_is_never_closed() -> None:
    manager, (a, b) = make(2)
    for now in range(5, 100, 5):
        a.last_active_ns = now * MS
        expired = manager.poll_expired(now * MS)
        assert expired is not a
        if expired is not None:
            manager.remove(expired)
    assert len(manager) == 1
    assert manager.poll_expired(106 * MS) is a
    assert manager.oldest() is a
    assert b.last_active_ns == 0


def test_the_oldest_is_known_whether_it_has_expired_or_not() -> None:
    manager, (a, b, c) = make(3)
    assert manager.oldest() is a, "of equals the first"
    a.last_active_ns, b.last_active_ns = 5, 6
    assert manager.oldest() is c
    manager.remove(c)
    assert manager.oldest() is a
    manager.remove(a)
    manager.remove(b)
    assert manager.oldest() is None


def test_nothing_is_searched_before_the_oldest_can_have_expired() -> None:
    manager, (a,) = make(1)
    looks = []

    def oldest() -> Connection:
        looks.append(a.last_active_ns)
        return a

    manager.oldest = oldest  # type: ignore[method-assign]
    for now in range(11):
        assert manager.poll_expired(now * MS) is None
    assert not looks
    a.last_active_ns = 9 * MS
    assert manager.poll_expired(11 * MS) is None
    for now in range(11, 20):
        assert manager.poll_expired(now * MS) is None
    assert len(looks) == 1
    assert manager.poll_expired(19 * MS + 1) is a


def test_connections_that_are_gone_do_not_pile_up() -> None:
    manager, (stays,) = make(1)
    for number in range(10_000):
        connection = Connection(number)
        manager.add(connection, number)
        manager.remove(connection)
    assert len(manager._heap) < 200
    assert manager.oldest() is stays


def test_a_connection_that_is_gone_is_freed_at_once() -> None:
    """Many that are freed together stop the network thread: their TLS engines are large."""
    manager, connections = make(200)
    freed: list[int] = []
    for connection in connections:
        weakref.finalize(connection, freed.append, connection.name)
    del connection
    while connections:
        connection = connections.pop()
        manager.remove(connection)
        del connection
        assert len(freed) == 200 - len(connections)


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["add", "remove", "active", "poll"]), st.integers(0, 5), st.integers(0, 8)), max_size=60
)


@given(ACTIONS)
def test_it_names_what_a_search_through_all_would_name(actions: list[tuple[str, int, int]]) -> None:
    manager: IdleExpiryManager[Connection] = IdleExpiryManager(10, 0)
    present: dict[int, Connection] = {}
    now = 0
    for action, name, step in actions:
        now += step * MS
        if action == "add" and name not in present:
            present[name] = Connection(name)
            manager.add(present[name], now)
        elif action == "remove" and name in present:
            manager.remove(present.pop(name))
        elif action == "active" and name in present:
            present[name].last_active_ns = now
        elif action == "poll":
            expired = manager.poll_expired(now)
            oldest = min((c.last_active_ns for c in present.values()), default=None)
            if oldest is not None and now - oldest > 10 * MS:
                assert expired is not None
                assert expired.last_active_ns == oldest
                manager.remove(present.pop(expired.name))
            else:
                assert expired is None
        assert len(manager) == len(present)
