"""The mute state machine of a channel.

A muted channel is not read. It is muted when one of its requests is passed to the handlers, and stays muted until the
response is sent, which keeps the requests of one connection in order. A quota violation extends the muting: the
response is sent at once, and reading resumes only when the throttle time is over.

All transitions are in this table; anything else is a bug and raises.

====================================== ================= ======================================
state                                  event             next state
====================================== ================= ======================================
MUTED                                  REQUEST_RECEIVED  MUTED_AND_RESPONSE_PENDING
MUTED_AND_RESPONSE_PENDING             RESPONSE_SENT     MUTED
MUTED_AND_RESPONSE_PENDING             THROTTLE_STARTED  MUTED_AND_THROTTLED_AND_RESPONSE_PENDING
MUTED_AND_THROTTLED_AND_RESPONSE_...   RESPONSE_SENT     MUTED_AND_THROTTLED
MUTED_AND_THROTTLED_AND_RESPONSE_...   THROTTLE_ENDED    MUTED_AND_RESPONSE_PENDING
MUTED_AND_THROTTLED                    THROTTLE_ENDED    MUTED
====================================== ================= ======================================

A channel may return to NOT_MUTED only from MUTED.
"""

from __future__ import annotations

from enum import IntEnum, auto


class ChannelMuteState(IntEnum):
    NOT_MUTED = auto()
    MUTED = auto()
    MUTED_AND_RESPONSE_PENDING = auto()
    MUTED_AND_THROTTLED = auto()
    MUTED_AND_THROTTLED_AND_RESPONSE_PENDING = auto()


class ChannelMuteEvent(IntEnum):
    REQUEST_RECEIVED = auto()
    RESPONSE_SENT = auto()
    THROTTLE_STARTED = auto()
    THROTTLE_ENDED = auto()


NOT_MUTED = ChannelMuteState.NOT_MUTED
MUTED = ChannelMuteState.MUTED
RESPONSE_PENDING = ChannelMuteState.MUTED_AND_RESPONSE_PENDING
THROTTLED = ChannelMuteState.MUTED_AND_THROTTLED
THROTTLED_AND_RESPONSE_PENDING = ChannelMuteState.MUTED_AND_THROTTLED_AND_RESPONSE_PENDING

TRANSITIONS: dict[tuple[ChannelMuteState, ChannelMuteEvent], ChannelMuteState] = {
    (MUTED, ChannelMuteEvent.REQUEST_RECEIVED): RESPONSE_PENDING,
    (RESPONSE_PENDING, ChannelMuteEvent.RESPONSE_SENT): MUTED,
    (RESPONSE_PENDING, ChannelMuteEvent.THROTTLE_STARTED): THROTTLED_AND_RESPONSE_PENDING,
    (THROTTLED_AND_RESPONSE_PENDING, ChannelMuteEvent.RESPONSE_SENT): THROTTLED,
    (THROTTLED_AND_RESPONSE_PENDING, ChannelMuteEvent.THROTTLE_ENDED): RESPONSE_PENDING,
    (THROTTLED, ChannelMuteEvent.THROTTLE_ENDED): MUTED,
}


def next_state(state: ChannelMuteState, event: ChannelMuteEvent) -> ChannelMuteState:
    following = TRANSITIONS.get((state, event))
    if following is None:
        raise RuntimeError(f"a channel that is {state.name} cannot take {event.name}")
    return following
