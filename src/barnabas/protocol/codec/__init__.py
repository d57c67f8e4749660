"""Codecs: read and write a message as its declaration says.

    interpreter            walks the declaration field by field; the reference, and the source of error messages
    compiler               generates an encoder and a decoder for one version of a message
    encoding, decoding     the two generators; source: the text being generated; runtime: what generated code calls

Start with `compiler`, which shows a piece of generated source.
"""
