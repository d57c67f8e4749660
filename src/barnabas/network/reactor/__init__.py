"""The reactor: one thread, many connections.

    selector           polls sockets, reads requests, writes responses, closes idle and failed connections
    channel            one connection: its partly read request, its current send, its mute state
    channel_factory    chooses the transport and the authenticator of a new connection
    poller, send, idle, memory_pool, spare_buffers    the parts of both; `_kernels.channel_mute` has the mute states

Start with `selector`. The loop over events is the compiled owner `barnabas._kernels.reactor`.
"""
