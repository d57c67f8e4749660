"""Connections that do not leave the machine.

They have no network to share, and one thing that is right for a network is wrong for them: congestion control that
*paces*. BBR, the default of many systems, spreads what is sent over time, at a rate that it measures. Between two
processes on one machine there is no queue of a router to keep short, only timers that fire for every few packets: half
of what ``sendfile`` moves over loopback is lost to that (2.6 GB/s instead of 5.3). Reno sends what the window allows,
at once. It is built into every Linux, and every process may choose it.
"""

from __future__ import annotations

import ipaddress
import socket
import sys
from contextlib import suppress
from typing import Any

_PACES = b"bbr"
"""How the names of the algorithms begin that pace: bbr, bbr2, bbr3."""
_DOES_NOT_PACE = b"reno"
_LONGEST_NAME = 16
"""TCP_CA_NAME_MAX of Linux."""
_INTERNET = {socket.AF_INET, socket.AF_INET6}


def on_one_machine(own: tuple[Any, ...], peer: tuple[Any, ...]) -> bool:
    """Whether the two ends of a TCP connection, as ``getsockname`` and ``getpeername`` have them, are on one machine.

    The peer is a loopback address, or it is this very address: a machine that talks to itself by its outward name.
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
    """Turns pacing off for a TCP connection within this machine, where the system has chosen an algorithm that paces.

    Nothing depends on it: what the system refuses stays as it is.
    """
    if sys.platform != "linux" or sock.family not in _INTERNET:
        return
    with suppress(OSError):
        chosen = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _LONGEST_NAME)
        if chosen.startswith(_PACES) and on_one_machine(sock.getsockname(), peer):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _DOES_NOT_PACE)
