"""A job's results as JSON lines, the form in which clients follow them.

Many results pass through here for each that anybody looks at, so the SQLite store lets SQLite
write the lines: one statement for all of them, outside of Python's lock, which row by row would
be taken and given back while the scheduler's loop waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from .interface import Lines, Result

_encode_lines: Final = msgspec.json.Encoder().encode_lines


class ResultLine(msgspec.Struct, frozen=True):
    index: int
    state: str
    value: Raw | UnsetType
    exit_code: int | None
    error: str | None
    digest: str | None
    attempt: int
    worker: str | None
    sequence: int
    """Of the commit; `?after=` goes on behind it."""
    size: int | UnsetType = UNSET
    """Of a value that is too long for a line: `GET /api/v1/tasks/{id}/result` has it."""
    code: str | UnsetType = UNSET
    """Why the task failed or was cancelled."""


LINE_SQL: Final = """
'{"index":' || task_index || ',"state":"' || state || '"'
|| CASE WHEN length(value) THEN ',"value":' || CAST(value AS TEXT) ELSE '' END
|| ',"exit_code":' || coalesce(exit_code, 'null')
|| ',"error":' || CASE WHEN error = '' THEN 'null' ELSE json_quote(error) END
|| ',"digest":'
|| CASE WHEN length(digest) THEN '"blake3:' || lower(hex(digest)) || '"' ELSE 'null' END
|| ',"attempt":' || number || ',"worker":' || json_quote(worker)
|| ',"sequence":' || sequence
|| CASE WHEN value_size THEN ',"size":' || value_size ELSE '' END
|| CASE WHEN code || reason = '' THEN ''
   ELSE ',"code":' || json_quote(CASE WHEN reason = '' THEN code ELSE reason END) END
|| '}' || x'0a'
"""
"""A row of `results` as the same line."""


def lines_of(results: Sequence[Result], after: int) -> Lines:
    if not results:
        return Lines(b"", 0, after)
    encoded = _encode_lines([_line(result) for result in results])
    return Lines(encoded, len(results), results[-1].sequence)


def _line(result: Result) -> ResultLine:
    ended = result.ended
    return ResultLine(
        ended.index,
        ended.state,
        Raw(ended.value) if ended.value else UNSET,
        ended.exit_code,
        ended.error or None,
        "blake3:" + ended.digest.hex() if ended.digest else None,
        ended.number,
        ended.worker,
        result.sequence,
        ended.value_size or UNSET,
        ended.reason or ended.code or UNSET,
    )
