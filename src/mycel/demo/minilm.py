"""all-MiniLM-L6-v2 in numpy: texts become vectors, and a question finds the nearest.

This file travels with the tasks of `mycel demo embed`, as one of their inputs: it imports nothing
of Mycel, and finds its libraries and the model beside itself.

    python minilm.py embed FILE…            leaves vectors.npy, a row for each file, and names.json
    python minilm.py search PARTS QUESTION…  over the folders part-0, part-1, …; prints JSON
"""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, os.path.abspath("lib"))  # noqa: PTH100 - a link, which is to stay one

import numpy as np

Array = Any
LAYERS, HEADS, TOKENS_MAX = 6, 12, 256


class Model:
    def __init__(self, folder: str) -> None:
        from safetensors.numpy import load_file  # type: ignore[import-not-found]
        from tokenizers import Tokenizer  # type: ignore[import-not-found]

        self._weights: dict[str, Array] = load_file(f"{folder}/model.safetensors")
        self._tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
        self._tokenizer.enable_truncation(TOKENS_MAX)
        self._tokenizer.no_padding()

    def vector(self, text: str) -> Array:
        """Of length 1: the mean over what the last layer says of each token."""
        tokens = self._tokenizer.encode(text).ids
        state = self._embedded(tokens)
        for layer in range(LAYERS):
            state = self._layer(state, f"encoder.layer.{layer}")
        mean = state.mean(axis=0)
        return mean / np.linalg.norm(mean)

    def _embedded(self, tokens: list[int]) -> Array:
        words = self._weights["embeddings.word_embeddings.weight"][tokens]
        places = self._weights["embeddings.position_embeddings.weight"][: len(tokens)]
        kind = self._weights["embeddings.token_type_embeddings.weight"][0]
        return self._normal(words + places + kind, "embeddings.LayerNorm")

    def _layer(self, state: Array, name: str) -> Array:
        attended = self._attention(state, f"{name}.attention")
        state = self._normal(state + attended, f"{name}.attention.output.LayerNorm")
        inner = _gelu(self._linear(state, f"{name}.intermediate.dense"))
        return self._normal(
            state + self._linear(inner, f"{name}.output.dense"), f"{name}.output.LayerNorm"
        )

    def _attention(self, state: Array, name: str) -> Array:
        count, width = state.shape
        size = width // HEADS

        def split(which: str) -> Array:
            found = self._linear(state, f"{name}.self.{which}")
            return found.reshape(count, HEADS, size).transpose(1, 0, 2)

        query, key, value = split("query"), split("key"), split("value")
        scores = query @ key.transpose(0, 2, 1) / math.sqrt(size)
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        joined = (scores @ value).transpose(1, 0, 2).reshape(count, width)
        return self._linear(joined, f"{name}.output.dense")

    def _linear(self, state: Array, name: str) -> Array:
        return state @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _normal(self, state: Array, name: str) -> Array:
        centred = state - state.mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-12)
        return scaled * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]


def _gelu(x: Array) -> Array:
    """By the tanh, which differs from the exact one by less than a thousandth."""
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def embed(files: list[str]) -> None:
    model = Model("model")
    texts = [Path(file).read_text(encoding="utf-8", errors="replace") for file in files]
    np.save("vectors.npy", np.stack([model.vector(text) for text in texts]).astype(np.float32))
    Path("names.json").write_text(json.dumps(files))


def search(parts: int, questions: list[str], best: int = 3) -> dict[str, Any]:
    """The nearest texts to each question."""
    folders = [Path(f"part-{part}") for part in range(parts)]
    vectors = np.concatenate([np.load(folder / "vectors.npy") for folder in folders])
    names = [name for one in folders for name in json.loads((one / "names.json").read_text())]
    model = Model("model")
    found = {}
    for question in questions:
        likeness = vectors @ model.vector(question)
        order = np.argsort(-likeness)[:best]
        found[question] = [[names[place], round(float(likeness[place]), 3)] for place in order]
    return {"texts": len(names), "dimensions": int(vectors.shape[1]), "found": found}


if __name__ == "__main__":
    if sys.argv[1] == "embed":
        embed(sys.argv[2:])
    else:
        print(json.dumps(search(int(sys.argv[2]), sys.argv[3:])))
