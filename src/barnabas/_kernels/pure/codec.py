"""Decodes and encodes messages by their declaration: the twin of `compiled.codec`, which generates Python source."""

from __future__ import annotations

from barnabas.protocol.codec.decoding import compile_decoder as decoder
from barnabas.protocol.codec.encoding import compile_encoder as encoder

__all__ = ["decoder", "encoder"]
