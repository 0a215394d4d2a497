"""JSON of arguments and results, at the price of a quick call.

The interpreter imports this: the standard library only, and little of it. The `json` module
makes an encoder for each value and looks for white space around each text, which takes as long
as a small value itself. So its parts in C, where Python has them, are used directly, and the
module for all that they do not take.
"""

from __future__ import annotations

import json
import json.encoder

from .interpreter_values import FLOAT_MARK, check_keys, with_numbers, without_numbers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


_CONTAINERS = (list, tuple, dict)


class Json:
    """Strict: what JSON would change is an error, and NaN and infinities are written in words,
    since half of all readers refuse them."""

    def __init__(self) -> None:
        self._decoder = json.JSONDecoder()
        self._scan: Callable[[str, int], tuple[object, int]] = vars(self._decoder)["scan_once"]
        self._encoder = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        self._pieces: Callable[[object, int], tuple[str, ...]] | None = self._new_pieces()

    def decode(self, data: bytes) -> object:
        text = data.decode()
        try:
            value, end = self._scan(text, 0)
        except StopIteration:
            end = -1
        if end != len(text):
            value = self._decoder.decode(text)
        return with_numbers(value) if FLOAT_MARK in data else value

    def encode(self, value: object) -> bytes:
        if isinstance(value, _CONTAINERS):
            check_keys(value)
        try:
            return self._encode(value)
        except ValueError as error:
            try:
                in_words = without_numbers(value)
            except RecursionError:  # it contains itself
                raise error from None
            return self._encode(in_words)

    def _encode(self, value: object) -> bytes:
        if self._pieces is None:
            return self._encoder.encode(value).encode()
        try:
            return "".join(self._pieces(value, 0)).encode()
        except BaseException:
            self._pieces = self._new_pieces()  # it still believes to be inside of that value
            raise

    def _new_pieces(self) -> Callable[[object, int], tuple[str, ...]] | None:
        make = getattr(json.encoder, "c_make_encoder", None)
        if make is None:
            return None
        own = self._encoder
        pieces: Callable[[object, int], tuple[str, ...]] = make(
            {},
            own.default,
            json.encoder.encode_basestring,
            own.indent,
            own.key_separator,
            own.item_separator,
            own.sort_keys,
            own.skipkeys,
            own.allow_nan,
        )
        return pieces
