"""A model task whose input is a file: what its model gets instead.

| media type              | as if the input were                                       |
|-------------------------|------------------------------------------------------------|
| text/…, or none         | `{"text": …}`                                              |
| application/json        | `{"json": …}`; a list for a chat model is `{"messages": …}` |
| image/…, for chat       | a message with the image                                   |
| anything, for custom    | `{"json": {"base64": …, "media_type": …}}`                  |
| anything else           | `{"text": …}`, if it is text                               |

The file lies in the task's folder, where the worker has put it; nothing else is read.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, Final

import msgspec

from mycel.core.model.model_program import Kind
from mycel.core.model.task_files import MODEL_INPUT_PATH, is_below, is_digest

from .model_requests import UNREADABLE, BadInput

BLOB_KEY: Final = "blob"
INPUT_BYTES_MAX: Final = 64 << 20
_MARK: Final = b'"blob"'


def names_a_file(given: bytes) -> bool:
    """Perhaps: cheap enough to be asked of every request."""
    return _MARK in given


def with_content(kind: Kind, given: bytes, folder: str) -> bytes:
    """The same input with the file's content. Reads the disk. Raises `BadInput`."""
    fields = msgspec.json.decode(given)
    if not isinstance(fields, dict) or BLOB_KEY not in fields:
        return given
    media_type = fields.get("media_type") or "text/plain"
    if not isinstance(media_type, str):
        raise BadInput("media_type is a text")
    content = _read(fields[BLOB_KEY], folder)
    return msgspec.json.encode(_as_input(kind, content, media_type.partition(";")[0].strip()))


def _read(named: Any, folder: str) -> bytes:
    name = MODEL_INPUT_PATH if is_digest(named) else named
    path = Path(folder) / name if folder and isinstance(name, str) and is_below(name) else None
    if path is None or not path.is_file():
        raise BadInput(
            "the input's blob did not come along: among a job's arguments a file is "
            '{"blob": {"$file": "blake3:…", "path": "…"}}'
        )
    size = path.stat().st_size
    if size > INPUT_BYTES_MAX:
        raise BadInput(f"the input has {size} bytes; {INPUT_BYTES_MAX} are the limit for a model")
    return path.read_bytes()


def _as_input(kind: Kind, content: bytes, media_type: str) -> dict[str, Any]:
    if media_type == "application/json":
        try:
            document = msgspec.json.decode(content)
        except UNREADABLE as error:
            raise BadInput(f"the input is no JSON: {error}") from None
        is_conversation = kind == "chat" and isinstance(document, list)
        return {"messages" if is_conversation else "json": document}
    if media_type.startswith("text/"):
        return {"text": _text(content, media_type)}
    encoded = base64.b64encode(content).decode()
    if kind == "chat" and media_type.startswith("image/"):
        url = {"url": f"data:{media_type};base64,{encoded}"}
        return {
            "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": url}]}]
        }
    if kind == "custom":
        return {"json": {"base64": encoded, "media_type": media_type}}
    return {"text": _text(content, media_type)}  # such as application/toml


def _text(content: bytes, media_type: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise BadInput(
            f"the input, {media_type}, is no UTF-8 text, and this model takes nothing else: {error}"
        ) from None
