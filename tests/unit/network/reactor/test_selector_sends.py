"""What the reactor sends, and peers that do not take it."""

from __future__ import annotations

import pytest

from barnabas._kernels.channel_mute import ChannelMuteEvent
from barnabas.network.reactor.channel import ChannelState, KafkaChannel
from barnabas.network.reactor.poller import READ, WRITE
from barnabas.network.reactor.send import NetworkSend
from unit.network.reactor.selector_bench import Bench, bench, framed

# ---------------------------------------------------------------------------------------------------- N10


@pytest.mark.mechanism("N10")
def test_a_response_that_fits_goes_out_at_once() -> None:
    with bench() as b:
        channel, client = b.connect()
        assert b.selector.send(channel, NetworkSend([b"\0\0\0\4answ"]))
        assert client.socket.recv(100) == b"\0\0\0\4answ"
        assert (channel.events, b.selector.stats.bytes_sent) == (READ, 8)


@pytest.mark.mechanism("N10")
def test_a_response_that_does_not_fit_goes_out_bit_by_bit() -> None:
    with bench() as b:
        channel, client = b.connect(buffers=8192)
        answer = bytes(range(256)) * 1_200
        send = NetworkSend([answer])
        assert not b.selector.send(channel, send)
        assert channel.events & WRITE
        with pytest.raises(RuntimeError, match="still sending"):
            b.selector.send(channel, NetworkSend([b"second"]))
        got = bytearray()
        while len(got) < len(answer):
            got += client.socket.recv(1 << 20)
            b.poll(0)
        while send.remaining:
            b.poll(0)
        assert got == answer
        assert not channel.events & WRITE
        assert channel.send is None
        assert b.selector.stats.bytes_sent == len(answer)


@pytest.mark.mechanism("N10")
def test_a_finished_send_is_reported_once() -> None:
    with bench() as b:
        channel, client = b.connect(buffers=8192)
        send = NetworkSend([bytes(300_000)])
        b.selector.send(channel, send)
        reported: list[tuple[KafkaChannel, NetworkSend]] = []
        received = 0
        while received < send.size or not reported:
            if received < send.size:
                received += len(client.socket.recv(1 << 20))
            b.poll(10)
            reported += b.selector.completed_sends
        assert reported == [(channel, send)]
        b.poll(0)
        assert b.selector.completed_sends == []


@pytest.mark.mechanism("N10")
@pytest.mark.parametrize("muted", [False, True], ids=["client", "server"])
def test_a_peer_that_vanishes_while_its_response_goes_out_is_lost_for_good(muted: bool) -> None:
    """Also if its request is still counted as being handled: nothing would ever come to end that."""
    with bench() as b:
        channel, client = b.connect(buffers=8192)
        client.send(framed(b"1", b"2"))
        b.poll()
        if muted:
            b.selector.request_received(channel)
        send = NetworkSend([bytes(300_000)])
        assert not b.selector.send(channel, send)
        client.reset()
        assert b.poll_until_lost() == [("c", ChannelState.FAILED_SEND)]
        assert channel.send is send, "the owner sees which answer was lost"
        assert isinstance(channel.error, OSError)
        assert (b.selector.channels, b.selector.closing_channels) == ({}, {})


@pytest.mark.mechanism("N10")
def test_a_response_to_a_peer_that_is_gone_loses_the_connection() -> None:
    with bench() as b:
        channel, client = b.connect()
        client.send(framed(b"1"))
        b.poll()
        b.selector.request_received(channel)
        client.reset()
        send = NetworkSend([b"answer"])
        for _ in range(100):
            if not b.selector.send(channel, NetworkSend([b"answer"])):
                break
        assert [(lost.id, state) for lost, state in _lost(b)] == [("c", ChannelState.FAILED_SEND)]
        assert send.remaining


def _lost(b: Bench) -> list[tuple[KafkaChannel, ChannelState]]:
    b.poll(0)
    return b.selector.disconnected


@pytest.mark.mechanism("N10")
def test_a_throttled_channel_is_read_on_after_its_throttle() -> None:
    with bench() as b:
        channel, client = b.connect()
        client.send(framed(b"1", b"2"))
        b.poll()
        b.selector.request_received(channel)
        channel.handle_mute_event(ChannelMuteEvent.THROTTLE_STARTED)
        b.answer(channel, b"answer")
        assert client.socket.recv(100) == framed(b"answer"), "the answer does not wait"
        for _ in range(3):
            assert b.poll(0) == []
        channel.handle_mute_event(ChannelMuteEvent.THROTTLE_ENDED)
        b.selector.unmute(channel)
        assert b.poll() == [("c", b"2")]
