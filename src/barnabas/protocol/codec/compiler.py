"""Generates the encoder and the decoder of a declared message for one version: the twin of the kernel `codec`.

A decoder that walks the declaration field by field spends most of its time deciding what to do next. The version
determines all of those decisions: which fields exist, which are compact, which are tagged. The compiler makes them once
and generates straight-line Python source for the rest: adjacent fields of fixed size become one ``struct.Struct``, a
nested array becomes a ``for`` loop, and the length of the next string is read together with the numbers before it.

Generated source for the partitions of a ListOffsets request, version 7, looks like this::

    for _ in range(c5):
        o6 = new(C6)
        o6.partition_index, o6.current_leader_epoch, o6.timestamp, t7 = S3(buf, pos)
        pos += 17
        ...

``BARNABAS_SHOW_CODECS=1`` prints the generated source. The generated code checks every length against the remaining
bytes before it allocates anything, but it does not describe errors: on any failure
:mod:`barnabas.protocol.codec.interpreter` reads the message again, slowly, and reports which field is wrong and at
which byte.
"""
