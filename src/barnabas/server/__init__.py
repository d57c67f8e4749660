"""The request path behind the sockets: request channel, handler pool, purgatories, timers."""
