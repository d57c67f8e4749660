"""When a channel may be read: every event in every state."""

from __future__ import annotations

import itertools

import pytest

from barnabas._kernels.channel_mute import (
    MUTED,
    NOT_MUTED,
    RESPONSE_PENDING,
    THROTTLED,
    THROTTLED_AND_RESPONSE_PENDING,
    ChannelMuteEvent,
    ChannelMuteState,
    next_state,
)
from barnabas.network.reactor.channel import ANONYMOUS, KafkaChannel, maybe_unmute, mute
from barnabas.network.reactor.memory_pool import UNBOUNDED
from network_fixtures import ChunkTransport

pytestmark = pytest.mark.mechanism("N10")

RECEIVED = ChannelMuteEvent.REQUEST_RECEIVED
SENT = ChannelMuteEvent.RESPONSE_SENT
STARTED = ChannelMuteEvent.THROTTLE_STARTED
ENDED = ChannelMuteEvent.THROTTLE_ENDED

LEGAL = {
    (MUTED, RECEIVED): RESPONSE_PENDING,
    (RESPONSE_PENDING, SENT): MUTED,
    (RESPONSE_PENDING, STARTED): THROTTLED_AND_RESPONSE_PENDING,
    (THROTTLED_AND_RESPONSE_PENDING, SENT): THROTTLED,
    (THROTTLED_AND_RESPONSE_PENDING, ENDED): RESPONSE_PENDING,
    (THROTTLED, ENDED): MUTED,
}
"""Written down once more, so that a change of the table in the code is noticed."""

PAIRS = list(itertools.product(ChannelMuteState, ChannelMuteEvent))


def channel_in(state: ChannelMuteState) -> KafkaChannel:
    channel = KafkaChannel("c", ChunkTransport(), 100, UNBOUNDED, ANONYMOUS)
    channel.mute_state = state
    return channel


@pytest.mark.parametrize(("state", "event"), PAIRS, ids=lambda value: value.name)
def test_every_event_in_every_state(state: ChannelMuteState, event: ChannelMuteEvent) -> None:
    channel = channel_in(state)
    following = LEGAL.get((state, event))
    if following is None:
        with pytest.raises(RuntimeError, match=f"{state.name} cannot take {event.name}"):
            next_state(state, event)
        with pytest.raises(RuntimeError):
            channel.handle_mute_event(event)
        assert channel.mute_state is state
    else:
        assert next_state(state, event) is following
        channel.handle_mute_event(event)
        assert channel.mute_state is following


@pytest.mark.parametrize("state", ChannelMuteState, ids=lambda value: value.name)
def test_only_a_channel_that_is_muted_and_nothing_else_can_be_unmuted(state: ChannelMuteState) -> None:
    channel = channel_in(state)
    assert channel.is_muted == (state is not NOT_MUTED)
    assert maybe_unmute(channel) == (state in {NOT_MUTED, MUTED})
    assert channel.mute_state is (NOT_MUTED if state is MUTED else state)


@pytest.mark.parametrize("state", ChannelMuteState, ids=lambda value: value.name)
def test_muting_keeps_what_is_still_to_come(state: ChannelMuteState) -> None:
    channel = channel_in(state)
    mute(channel)
    assert channel.mute_state is (MUTED if state is NOT_MUTED else state)


@pytest.mark.parametrize(
    "events",
    [[SENT], [STARTED, SENT, ENDED], [STARTED, ENDED, SENT]],
    ids=lambda events: "-".join(e.name for e in events),
)
def test_a_channel_is_read_on_after_its_response_and_its_throttle(events: list[ChannelMuteEvent]) -> None:
    channel = channel_in(NOT_MUTED)
    mute(channel)
    channel.handle_mute_event(RECEIVED)
    for number, event in enumerate(events, 1):
        assert not maybe_unmute(channel)
        channel.handle_mute_event(event)
        assert maybe_unmute(channel) == (number == len(events))
