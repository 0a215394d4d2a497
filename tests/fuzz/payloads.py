"""Bytes that no honest peer sends. Each is wrong by its construction, whatever the reader's
code thinks of it."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from .protobuf import delimited, varint

NOISE_BYTES_MAX = 600
ALGORITHM = b"\x12\x24\x08\x00"
"""A public key in a biscuit: its tag, its length, and then its algorithm."""


def noise(random: Random) -> bytes:
    return random.randbytes(random.randint(1, NOISE_BYTES_MAX))


def flipped(random: Random, valid: bytes, first: int = 0) -> bytes:
    """With one bit that is another, and says something else by that."""
    while True:
        at = random.randrange(first, len(valid))
        if not says_the_same(valid, at):
            return with_bit(valid, at, random.randrange(8))


def says_the_same(token: bytes, at: int) -> bool:
    """Whether this is the place in a token where another byte may change nothing: a key's
    algorithm is 0, and what has no such field has that algorithm too."""
    return token[max(0, at - 2) : at + 2] == ALGORITHM


def with_bit(valid: bytes, at: int, bit: int) -> bytes:
    return valid[:at] + bytes([valid[at] ^ 1 << bit]) + valid[at + 1 :]


def broken_frames(random: Random, valid: bytes, frame_bytes_max: int) -> Iterator[bytes]:
    """For our own streams: a length of four bytes, then msgpack."""

    def frame(content: bytes) -> bytes:
        return len(content).to_bytes(4, "big") + content

    while True:
        yield frame(valid[: random.randrange(len(valid))])  # cut, with an honest length
        yield frame(valid)[: random.randrange(1, 4 + len(valid))]  # cut, with a length too long
        yield frame(valid + random.randbytes(random.randint(1, 40)))  # something behind the end
        yield frame(b"\xc1" + noise(random))  # a byte that msgpack never uses
        yield frame(b"\x92\xa7nothing" + b"\x91" * random.randint(1, 2000))  # no such message
        # A field of some later version, nested beyond reason, and without an end.
        yield frame(bytes([valid[0] + 1]) + valid[1:] + b"\x91" * random.randint(2000, 60_000))
        yield frame(b"\xdd\xff\xff\xff\xff")  # an array of four thousand million
        yield frame(b"\xc6\xff\xff\xff\xff" + noise(random))  # bytes that are not there
        yield frame(b"")
        yield random.randint(frame_bytes_max + 1, (1 << 31) - 1).to_bytes(4, "big") + noise(random)
        yield random.randint((1 << 31) + 9, (1 << 31) + (1 << 23)).to_bytes(4, "big")  # no kind
        yield noise(random)[:3]


def broken_protobuf(random: Random, valid: bytes) -> Iterator[bytes]:
    """For libp2p's own protocols: a varint length, then Protocol Buffers."""
    while True:
        yield delimited(valid[: random.randrange(max(1, len(valid)))])
        yield delimited(valid)[: random.randrange(1 + len(valid))]
        yield delimited(noise(random))
        yield noise(random)
        yield varint(random.randint(1 << 20, 1 << 34)) + noise(random)  # longer than any limit
        yield b"\xff" * random.randint(11, 40)  # a length that never ends
        yield delimited(b"\x0a" + varint(1 << 31) + noise(random))  # a field that is not there
        yield delimited(b"\xff\xff\xff\xff\x7f" * 3)  # a field number beyond all
        yield delimited(b"\x1b" * random.randint(1, 500))  # groups within groups
        yield delimited(flipped(random, valid or b"\0") + b"\x07")  # no such wire type


def broken_hellos(random: Random, valid: bytes) -> Iterator[bytes]:
    """`valid` is a whole hello; none of these is."""
    while True:
        yield bytes([valid[0] ^ random.randrange(1, 256)]) + valid[1:]  # another version
        yield valid[: random.randrange(1, len(valid))]
        yield valid[:1] + random.randint(16_385, 65_535).to_bytes(2, "big") + noise(random)
        yield valid[:1] + len(valid).to_bytes(2, "big") + random.randbytes(len(valid))
        yield noise(random)
        yield valid[:1] + b"\0\0"
        yield flipped(random, valid, 3)
