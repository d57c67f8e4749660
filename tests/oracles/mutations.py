"""Bytes that are nearly right: what a broken or hostile client may send."""

from __future__ import annotations

import random
from typing import Final

NASTY: Final = (
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x00\x00\x00\x00",
    b"\x7f\xff",
    b"\xff\xfe",
    b"\xc3\x28",
)


def mutate(data: bytes, chance: random.Random) -> bytes:
    """The data with one to four changes: a bit, some bytes more or fewer or repeated, a length that lies."""
    mutated = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(mutated) + 1)
        match chance.randrange(6):
            case 0 if at < len(mutated):
                mutated[at] ^= 1 << chance.randrange(8)
            case 1:
                del mutated[at : at + chance.randint(1, 8)]
            case 2:
                mutated[at:at] = chance.randbytes(chance.randint(1, 8))
            case 3:
                nasty = chance.choice(NASTY)
                mutated[at : at + len(nasty)] = nasty
            case 4:
                del mutated[at:]
            case _:
                mutated[at:at] = mutated[chance.randrange(len(mutated) + 1) :][: chance.randint(1, 64)]
    return bytes(mutated)


def overwrite(data: bytes, chance: random.Random) -> bytes:
    """The data with one change in place. Most of what comes out can still be decoded, and gets further."""
    mutated = bytearray(data)
    at = chance.randrange(len(mutated)) if mutated else 0
    if chance.random() < 0.5 and mutated:
        mutated[at] ^= 1 << chance.randrange(8)
    else:
        nasty = chance.choice(NASTY)[: len(mutated) - at]
        mutated[at : at + len(nasty)] = nasty
    return bytes(mutated)
