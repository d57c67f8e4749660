"""A send: a response or request as a list of pieces, and how much of it has been sent.

Pieces are buffers, or file regions that the transport sends without reading them. Small pieces are joined: one system
call for a 60-byte header and a 40-byte body costs less than two. That includes regions: a consumer at the end of a log
gets some hundred bytes per response, in one packet instead of three. In large messages the buffers before and after
each region are joined, and are sent together with the data that follows.
"""

from __future__ import annotations

from barnabas._kernels import reactor

FileRegion = reactor.FileRegion
NetworkSend = reactor.NetworkSend

__all__ = ["FileRegion", "NetworkSend"]
