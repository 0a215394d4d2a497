"""What GGUF files say of themselves, and files that are none."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from mycel.drivers.model.gguf import OVERHEAD_BYTES, NotGguf, read_gguf


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def number(name: str, value: int) -> bytes:
    return text(name) + struct.pack("<II", 4, value)


def write(path: Path, *keys: bytes, weights: int = 1000) -> Path:
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, len(keys))
    path.write_bytes(head + b"".join(keys) + bytes(weights))
    return path


SMALL = (
    number("llama.block_count", 30),
    number("llama.embedding_length", 576),
    number("llama.attention.head_count", 9),
    number("llama.attention.head_count_kv", 3),
    number("llama.context_length", 8192),
)


def test_memory_is_weights_cache_and_some(tmp_path: Path) -> None:
    tokens = text("tokenizer.tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("bc")
    scores = text("tokenizer.scores") + struct.pack("<IIQ", 9, 6, 3) + bytes(12)
    path = write(tmp_path / "model.gguf", tokens, scores, *SMALL)
    facts = read_gguf(path)
    assert (facts.layers, facts.cached_heads, facts.context) == (30, 3, 8192)
    per_token = 2 * 30 * 3 * 64 * 2
    assert facts.memory(100) == path.stat().st_size + 100 * per_token + OVERHEAD_BYTES


def test_a_file_that_says_nothing_takes_its_size(tmp_path: Path) -> None:
    path = write(tmp_path / "model.gguf")
    assert read_gguf(path).memory(4096) == path.stat().st_size + OVERHEAD_BYTES


def test_what_is_no_gguf_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(NotGguf, match="No such file"):
        read_gguf(tmp_path / "nothing.gguf")
    other = tmp_path / "other.gguf"
    other.write_text("hello there")
    with pytest.raises(NotGguf, match=r"other\.gguf is no GGUF file"):
        read_gguf(other)
    whole = write(tmp_path / "cut.gguf", *SMALL).read_bytes()
    for length in range(4, len(whole) - 1000):
        other.write_bytes(whole[:length])
        with pytest.raises(NotGguf, match="no whole GGUF"):
            read_gguf(other)
    endless = text("k") + struct.pack("<IIQ", 9, 8, 2**63)
    with pytest.raises(NotGguf, match="no whole GGUF"):
        read_gguf(write(other, endless))
