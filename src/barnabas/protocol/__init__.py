"""Kafka's wire protocol: declared messages, and the codecs generated from the declarations.

    api_keys       the table of every API: its key, versions and scope
    fields         field declarations; message: the classes that declare messages
    messages/      one module per API
    internal/      records of the internal topics and files
    headers, framing    request and response headers, length-prefixed frames
    codec/         the interpreter, and the compiler that generates fast codecs

Start with `messages/heartbeat.py`, a short declaration, then `codec/compiler.py`.
"""
