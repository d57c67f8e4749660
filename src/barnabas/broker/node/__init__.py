"""Starts and stops a node, from top to bottom.

    kafka_raft_server    the node: a broker, a controller, or both in one process
    broker_server        the broker; controller_server: the controller; shared_server: what both need
    request_serving      connects sockets to handlers
    coordinators         the coordinators of a broker, made on demand
    http_endpoint        ``/metrics`` and ``/health``

Start with `kafka_raft_server`.
"""
