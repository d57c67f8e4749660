"""The network client: sends requests to nodes and returns their responses.

    network_client       the client itself: one connection per node, made and repaired as needed
    request_pipeline     turns requests into bytes, and events of the selector into responses
    node_connection      the state of the connection to one node; connection_states, inflight: its parts
    version_negotiation  the first exchange on a connection

Start with `network_client`. Producer, consumer, admin and the broker's own channels use it.
"""
