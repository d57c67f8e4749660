"""What goes out: a response or request as a list of pieces, and how much of it has left.

Pieces are buffers, or regions of files that the transport moves without reading them. What is small is joined: one
system call for a 60-byte header and a 40-byte body costs less than two. That holds for regions, too. A consumer at the
end of a log gets some hundred bytes with each answer, and has them in one packet instead of three. In large messages
the buffers before and after each region are joined, and are not sent off alone but together with what follows.
"""

from __future__ import annotations

from barnabas._kernels import reactor

FileRegion = reactor.FileRegion
NetworkSend = reactor.NetworkSend

__all__ = ["FileRegion", "NetworkSend"]
