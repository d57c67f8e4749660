"""Sockets and the threads that own them: the only package that does network I/O.

    reactor/      the selector and its channels: readiness, reads, writes, mute states; used by brokers and clients
    transport/    how bytes get in and out of one socket: plaintext, TLS, or the local socket
    server/       listeners, acceptors, processors and connection quotas
    client/       the network client: connections to nodes, requests in flight, version negotiation

Start with `server/processor.py` for a broker and `client/network_client.py` for a client.
"""
