"""Connections that do not leave the machine.

They share no network, so congestion control that *paces* is wrong for them. BBR, the default of many systems, spreads
data over time, at a rate that it measures. Between two processes on one machine there is no router queue to keep short,
only timers that fire for every few packets: that halves the throughput of ``sendfile`` over loopback (2.6 GB/s instead
of 5.3). Reno sends what the window allows, at once. It is built into every Linux, and every process may choose it.
"""

from __future__ import annotations

import ipaddress
import socket
import sys
from contextlib import suppress
from typing import Any

_PACES = b"bbr"
"""The prefix of the names of pacing algorithms: bbr, bbr2, bbr3."""
_DOES_NOT_PACE = b"reno"
_LONGEST_NAME = 16
"""TCP_CA_NAME_MAX of Linux."""
_INTERNET = {socket.AF_INET, socket.AF_INET6}


def on_one_machine(own: tuple[Any, ...], peer: tuple[Any, ...]) -> bool:
    """Whether both ends of a TCP connection, from ``getsockname`` and ``getpeername``, are on one machine.

    The peer is a loopback address, or equals the own address: a machine that talks to itself by its outward name.
    """
    if own[0] == peer[0]:
        return True
    try:
        address = ipaddress.ip_address(peer[0].partition("%")[0])
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def do_not_pace(sock: socket.socket, peer: tuple[Any, ...]) -> None:
    """Turns pacing off for a TCP connection within this machine, if the system's algorithm paces.

    This is optional: if the system refuses, nothing changes.
    """
    if sys.platform != "linux" or sock.family not in _INTERNET:
        return
    with suppress(OSError):
        chosen = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _LONGEST_NAME)
        if chosen.startswith(_PACES) and on_one_machine(sock.getsockname(), peer):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _DOES_NOT_PACE)
