"""Produce requests and responses of the usual shape, written and read in one go.

A producer sends, and gets, hardly any others: a request of no transaction for one topic, with one batch for each
partition; a response without an error that would have to be explained, and neither with tagged fields. Their codecs are
the compiled `_produce_codec`, which puts the two short pieces around each batch together, and fills in the objects of a
response, without a step in Python for each field. Whatever is not as usual goes to the codec that was generated for the
version, and so does everything where the compiled one is not built. That one also says what is wrong if something is.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.protocol.message import Decoder, Encoder, Struct


def plain_request_encoder(
    request: type[Struct], topic: type[Struct], partition: type[Struct], version: int, otherwise: Encoder
) -> Encoder:
    """An encoder of produce requests that leaves those of another shape to ``otherwise``."""
    if os.environ.get("BARNABAS_PURE") == "1":
        return otherwise
    try:
        from barnabas.protocol._produce_codec import RequestEncoder  # noqa: PLC0415 - may not have been built
    except ImportError:
        return otherwise
    return RequestEncoder(request, topic, partition, version, otherwise)


def plain_response_decoder(
    response: type[Struct], topic: type[Struct], partition: type[Struct], version: int, otherwise: Decoder
) -> Decoder:
    """A decoder of produce responses that leaves those of another shape to ``otherwise``."""
    if os.environ.get("BARNABAS_PURE") == "1":
        return otherwise
    try:
        from barnabas.protocol._produce_codec import ResponseDecoder  # noqa: PLC0415 - may not have been built
    except ImportError:
        return otherwise
    return ResponseDecoder(response, topic, partition, version, otherwise)
