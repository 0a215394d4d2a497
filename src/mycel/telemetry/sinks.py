"""Where log lines go: a file that is put aside when it is long, or a stream."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO, Final

FILE_BYTES_MAX: Final = 10_000_000
FILES_KEPT: Final = 3


class FileSink:
    """`log.jsonl`, and the full ones before it as `log.jsonl.1`, `.2`, …

    Only its owner may read it. Raises OSError if the file cannot be opened.
    """

    def __init__(
        self, path: Path, *, bytes_max: int = FILE_BYTES_MAX, files_kept: int = FILES_KEPT
    ) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._files_kept = files_kept
        self._descriptor = -1
        self._bytes = 0
        self._open()

    def write(self, lines: bytes) -> None:
        if self._bytes and self._bytes + len(lines) > self._bytes_max:
            self._rotate()
        if self._descriptor < 0:
            self._open()
        self._bytes += len(lines)
        view = memoryview(lines)
        while view:
            view = view[os.write(self._descriptor, view) :]

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._descriptor = os.open(self._path, flags, 0o600)
        self._bytes = os.fstat(self._descriptor).st_size

    def _rotate(self) -> None:
        self.close()
        self._numbered(self._files_kept).unlink(missing_ok=True)
        for number in range(self._files_kept - 1, -1, -1):
            source = self._numbered(number)
            if source.exists():
                source.replace(self._numbered(number + 1))
        self._open()

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}") if number else self._path


class StreamSink:
    """Such as `sys.stderr.buffer`; it is not closed."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def write(self, lines: bytes) -> None:
        self._stream.write(lines)
        self._stream.flush()

    def close(self) -> None:
        """The stream belongs to whoever opened it."""
