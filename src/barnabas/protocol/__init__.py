"""Kafka's wire protocol: declared messages, and the codecs generated from the declarations.

    api_keys       the table of every API: its key, versions and scope
    fields         the vocabulary of declarations; message: the classes that declarations become
    messages/      one module per API
    internal/      records of the internal topics and files
    headers, framing    what surrounds a body
    codec/         the interpreter, and the compiler of fast codecs

Start with `messages/heartbeat.py`, a short declaration, then `codec/compiler.py`.
"""
