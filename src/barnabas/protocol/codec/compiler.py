"""Generates the encoder and the decoder of a declared message for one version: the twin of the kernel `codec`.

A decoder that walks the declaration field by field spends most of its time deciding what to do next. All of those
decisions are known once the version is: which fields exist, which are compact, which are tagged. So they are made
once, and what is left is written down as straight-line Python source and compiled: the fields of fixed size that
follow each other become one ``struct.Struct``, a nested array becomes a ``for`` loop, and the length of the string
that comes next is read together with the numbers before it.

Generated source for the partitions of a ListOffsets request, version 7, looks like this::

    for _ in range(c5):
        o6 = new(C6)
        o6.partition_index, o6.current_leader_epoch, o6.timestamp, t7 = S3(buf, pos)
        pos += 17
        ...

``BARNABAS_SHOW_CODECS=1`` prints each one as it is made. The generated code checks every length against the bytes that
are left before it allocates anything, but it does not describe what is wrong: on any failure the message is read once
more by :mod:`barnabas.protocol.codec.interpreter`, slowly, and that says which field at which byte.
"""
