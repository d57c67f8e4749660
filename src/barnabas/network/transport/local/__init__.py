"""The transport between processes of one machine: a Unix socket, and references in place of large messages.

Start with `offer`: how a connection moves from TCP to the local socket. `server` is the broker's side of it, `layer`
the `TransportLayer` of both sides. `frame_references` sends a large message as a reference to memory or to a file,
`shared_memory` is the memory of such messages, and `unread_message` a message whose records are still in a file.
"""
