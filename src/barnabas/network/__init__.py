"""Sockets and the threads that own them: the only package that does network I/O."""
