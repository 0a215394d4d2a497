"""What calls are sent as: bodies of tasks, arguments, and the blobs that they need first."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mycel.blobs import digests

from . import dependencies, pickling, values
from .options import DEFAULT, Options
from .persistence import persistently

if TYPE_CHECKING:
    from mycel.client.client import Client

REMEMBERED_SECONDS: Final = 3600.0
"""What was uploaded is not offered again for so long; the scheduler keeps it for longer."""
UPLOADS_REMEMBERED_MAX: Final = 100_000

Key = tuple[Any, ...]
Prepared = tuple[bytes, dict[str, Any], bytes, Key]
"""Of a call: its arguments as JSON, the task's body, the code that goes with it, and what makes
two calls alike."""


class CallBodies:
    """Of one client. Thread-safe."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._pickling = pickling.Pickling()
        self._uploaded: dict[str, float] = {}
        """Digests, and until when they need not be offered again."""

    def prepared(
        self,
        function: Any,
        options: Options,
        positional: tuple[Any, ...],
        named: Mapping[str, Any],
    ) -> Prepared:
        fields, extra = self._fields(options)
        given = self.arguments(function, positional, named)
        if isinstance(function, str):
            return given.json, {"python": function, **fields}, b"", (function, extra)
        call = self._pickling.call(function, given)
        body: dict[str, Any] = {
            "name": call.name,
            "python_version": pickling.PYTHON_VERSION,
            "function": call.function,
        }
        if call.code:
            body["code"] = digests.of_bytes(call.code)
        key = (call.function, body.get("code"), extra)
        return self.uploaded(given), {"call": body, **fields}, call.code, key

    def _fields(self, options: Options) -> tuple[dict[str, Any], bytes]:
        if options is DEFAULT:
            return {}, b""
        fields = dict(self._client.with_files(options.body()))
        return fields, msgspec.json.encode(fields)

    def arguments(
        self, function: Any, positional: tuple[Any, ...], named: Mapping[str, Any]
    ) -> pickling.Arguments:
        """Futures among them have ended, or are waited for."""
        if dependencies.futures_in(positional, named):
            return dependencies.arguments(function, positional, named)
        if isinstance(function, str):
            return pickling.Arguments(msgspec.json.encode(values.both(positional, named)))
        return pickling.arguments(positional, named)

    def uploaded(self, given: pickling.Arguments) -> bytes:
        """Arguments as JSON, when what they need is with the scheduler."""
        if given.blobs:
            self._upload(given.blobs)
        return given.json

    def upload_code(self, code: bytes) -> None:
        if code:
            self._upload({digests.of_bytes(code): code})

    def _upload(self, blobs: Mapping[str, bytes]) -> None:
        now = time.monotonic()
        remembered = self._uploaded
        new = {one: blobs[one] for one in blobs if remembered.get(one, 0.0) < now}
        if not new:
            return
        persistently(lambda: self._client.upload(new))
        if len(remembered) > UPLOADS_REMEMBERED_MAX:
            remembered.clear()
        remembered.update(dict.fromkeys(new, now + REMEMBERED_SECONDS))
