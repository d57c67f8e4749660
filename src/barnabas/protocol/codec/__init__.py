"""Codecs: encode and decode a message according to its declaration.

    interpreter            walks the declaration field by field; the reference, and the source of error messages
    compiler               generates an encoder and a decoder for one version of a message
    encoding, decoding     the two generators; source: the text being generated; runtime: functions for generated code

Start with `compiler`, which shows a piece of generated source.
"""
