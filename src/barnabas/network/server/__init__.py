"""The server side of the network: from a listening socket to a request.

    socket_server         all listeners of a node
    acceptor              accepts connections and passes them to processors
    processor             a network thread: reads requests, sends responses
    plane, response       the interface between processors and handlers: requests, and responses
    connection_quotas     limits on the number and the rate of connections; connection_limits, connection_rates

Start with `socket_server`, then `processor`.
"""
