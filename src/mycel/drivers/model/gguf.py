"""What a GGUF file says of itself: enough to tell how much memory it takes.

The file begins with a header, then a list of keys with typed values, then the tensors. Only the
keys are read, and of those only numbers; what is longer than it should be is no GGUF file.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

MAGIC: Final = b"GGUF"
KEYS_MAX: Final = 10_000
TEXT_BYTES_MAX: Final = 16 << 20
ARRAY_ITEMS_MAX: Final = 10_000_000
OVERHEAD_BYTES: Final = 128 << 20
"""The runtime, its threads and its scratch space."""
_CACHE_VALUE_BYTES: Final = 2
_STRING: Final = 8
_ARRAY: Final = 9
_NUMBERS: Final = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}


class NotGguf(Exception):
    """The owner's fault: the message says which file, and what is wrong with it."""


class GgufFacts(msgspec.Struct, frozen=True):
    size: int
    """Bytes of the file."""
    layers: int = 0
    width: int = 0
    """Of the embedding."""
    heads: int = 0
    cached_heads: int = 0
    context: int = 0
    """Tokens that it was trained for."""

    def memory(self, context_tokens: int) -> int:
        """About what serving it takes: the weights, what is cached of each token, and some."""
        head_width = self.width // self.heads if self.heads else 0
        token_bytes = 2 * self.layers * self.cached_heads * head_width * _CACHE_VALUE_BYTES
        return self.size + context_tokens * token_bytes + OVERHEAD_BYTES


def read_gguf(path: Path) -> GgufFacts:
    try:
        with path.open("rb") as file:
            numbers = _numbers(file, path)
            size = path.stat().st_size
    except OSError as error:
        raise NotGguf(f"cannot read the model {path}: {error.strerror or error}") from None
    except (struct.error, ValueError, UnicodeDecodeError):
        raise NotGguf(f"{path} is no whole GGUF file: its keys end too soon") from None
    heads = _ending(numbers, ".attention.head_count")
    return GgufFacts(
        size=size,
        layers=_ending(numbers, ".block_count"),
        width=_ending(numbers, ".embedding_length"),
        heads=heads,
        cached_heads=_ending(numbers, ".attention.head_count_kv") or heads,
        context=_ending(numbers, ".context_length"),
    )


def _ending(numbers: dict[str, float], end: str) -> int:
    return next((int(value) for name, value in numbers.items() if name.endswith(end)), 0)


def _numbers(file: BinaryIO, path: Path) -> dict[str, float]:
    if file.read(4) != MAGIC:
        raise NotGguf(f"{path} is no GGUF file")
    _version, _tensors, count = _unpack(file, "<IQQ")
    if count > KEYS_MAX:
        raise ValueError(count)
    numbers: dict[str, float] = {}
    for _ in range(int(count)):
        name = _text(file).decode()
        kind = int(_unpack(file, "<I")[0])
        if kind in _NUMBERS:
            numbers[name] = _unpack(file, _NUMBERS[kind])[0]
        else:
            _skip(file, kind)
    return numbers


def _unpack(file: BinaryIO, form: str) -> tuple[float, ...]:
    return struct.unpack(form, file.read(struct.calcsize(form)))


def _text(file: BinaryIO) -> bytes:
    length = int(_unpack(file, "<Q")[0])
    if length > TEXT_BYTES_MAX:
        raise ValueError(length)
    return file.read(length)


def _skip(file: BinaryIO, kind: int) -> None:
    if kind == _STRING:
        _text(file)
        return
    if kind != _ARRAY:
        raise ValueError(kind)
    item, count = (int(value) for value in _unpack(file, "<IQ"))
    if count > ARRAY_ITEMS_MAX:
        raise ValueError(count)
    if item in _NUMBERS:
        file.seek(struct.calcsize(_NUMBERS[item]) * count, 1)
        return
    for _ in range(count):
        _skip(file, item)
