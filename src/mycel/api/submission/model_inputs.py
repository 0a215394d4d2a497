"""What a model task may be given, and the file if it is one."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from mycel.api.http.problems import unprocessable
from mycel.core.model.task_files import MODEL_INPUT_PATH, Input, is_digest

from .bodies import decode_input


def files_of_input(given: bytes, path: str) -> tuple[Input, ...]:
    """Refuses what no model could take."""
    if given[:1] == b'"':
        return ()
    if given[:1] != b"{":
        raise unprocessable("input is a string or an object", path)
    try:
        fields = decode_input(given)
    except msgspec.ValidationError as error:
        raise unprocessable(str(error), path) from error
    ways = (fields.text, fields.messages, fields.blob, None if fields.json is UNSET else 1)
    if sum(way is not None for way in ways) != 1:
        raise unprocessable("input has exactly one of text, messages, json and blob", path)
    if fields.blob is None:
        return ()
    if not is_digest(fields.blob):
        detail = f"{fields.blob[:80]!r} is no digest: 'blake3:' and 64 hexadecimal digits"
        raise unprocessable(detail, f"{path}.blob")
    return (Input(MODEL_INPUT_PATH, fields.blob),)
