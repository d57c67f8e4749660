"""The server side of the network: from a listening socket to a request.

    socket_server         all listeners of a node
    acceptor              accepts connections and passes them to processors
    processor             a network thread: reads requests, sends responses
    plane, response       what a processor passes to the handlers, and what comes back
    connection_quotas     limits on the number and the rate of connections; connection_limits, connection_rates

Start with `socket_server`, then `processor`.
"""
