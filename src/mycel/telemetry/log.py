"""Structured logs: one JSON object per line, with time, level, event and fields.

    log.info("job opened", job=…) ─▶ buffer ─▶ sink
                                       flushed after half a second, when it is long,
                                       at a warning or above, and at the end

A line costs about a microsecond, since it is only encoded and put into a queue. Logging never
raises: what a sink does not take is dropped and counted.
"""

from __future__ import annotations

import atexit
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, Protocol

import msgspec

LevelName = Literal["debug", "info", "warning", "error"]

FLUSH_SECONDS: Final = 0.5
FLUSH_LINES: Final = 1000
LINE_BYTES_MAX: Final = 64 << 10
_LEVELS: Final[dict[str, int]] = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class Sink(Protocol):
    """Where lines go. Called by one thread at a time."""

    def write(self, lines: bytes) -> None:
        """Raises OSError if it cannot take them."""

    def close(self) -> None: ...


class Log:
    """Thread-safe. `common` fields, such as the role, are in every line; a call's own fields
    must not be named time, level or event."""

    def __init__(
        self,
        sink: Sink,
        level: LevelName = "info",
        *,
        common: Mapping[str, Any] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._sink = sink
        self._threshold = _LEVELS[level]
        self._common = dict(common or {})
        self._now = now
        self._encode = msgspec.json.Encoder(enc_hook=repr).encode
        self._lines: deque[bytes] = deque()
        self._writing = threading.Lock()
        self._something = threading.Event()
        self._closing = threading.Event()
        self.lines_dropped = 0
        self._flusher = threading.Thread(target=self._flush_regularly, name="log", daemon=True)
        self._flusher.start()
        atexit.register(self.close)

    def set_level(self, level: LevelName) -> None:
        self._threshold = _LEVELS[level]

    def debug(self, event: str, /, **fields: Any) -> None:
        if self._threshold <= 10:
            self._put("debug", event, fields)

    def info(self, event: str, /, **fields: Any) -> None:
        if self._threshold <= 20:
            self._put("info", event, fields)

    def warning(self, event: str, /, **fields: Any) -> None:
        if self._threshold <= 30:
            self._put("warning", event, fields)
            self.flush()

    def error(self, event: str, /, **fields: Any) -> None:
        self._put("error", event, fields)
        self.flush()

    def flush(self) -> None:
        """Hands everything so far to the sink."""
        with self._writing:
            # One by one: other threads go on to append while these are taken.
            lines = [self._lines.popleft() for _ in range(len(self._lines))]
            if not lines or self._closing.is_set():
                return
            try:
                self._sink.write(b"\n".join(lines) + b"\n")
            except (OSError, ValueError) as error:
                self._drop(len(lines), error)

    def close(self) -> None:
        """Flushes and closes the sink; later lines are dropped."""
        if self._closing.is_set():
            return
        self.flush()
        with self._writing:
            self._closing.set()
            self._something.set()
            self._sink.close()
        self._flusher.join()
        atexit.unregister(self.close)

    def _put(self, level: str, event: str, fields: dict[str, Any]) -> None:
        record = {"time": self._now(), "level": level, "event": event, **self._common, **fields}
        try:
            line = self._encode(record)
        except (TypeError, ValueError, OverflowError, RecursionError):
            line = self._encode({key: ascii(value) for key, value in record.items()})
        if len(line) > LINE_BYTES_MAX:
            short = {"time": record["time"], "level": level, "event": event[:1000]}
            line = self._encode({**short, "bytes_too_long": len(line)})
        self._lines.append(line)
        if not self._something.is_set():
            self._something.set()
        if len(self._lines) >= FLUSH_LINES:
            self.flush()

    def _flush_regularly(self) -> None:
        while not self._closing.is_set():
            self._something.wait()
            self._something.clear()
            self._closing.wait(FLUSH_SECONDS)
            self.flush()

    def _drop(self, count: int, error: BaseException) -> None:
        first = not self.lines_dropped
        self.lines_dropped += count
        if first and sys.stderr is not None:
            print(f"mycel: log lines are being lost: {error}", file=sys.stderr)


class _Router(logging.Handler):
    """Takes what libraries log."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except (TypeError, ValueError):
            message = str(record.msg)  # its arguments do not fit: that must not stop anybody
        fields: dict[str, Any] = {"logger": record.name, "message": message}
        if record.exc_info and record.exc_info[1] is not None:
            fields["exception"] = logging.Formatter().formatException(record.exc_info)
        self._method(record.levelno)("library", **fields)

    def _method(self, level: int) -> Callable[..., None]:
        if level >= logging.ERROR:
            return self._log.error
        if level >= logging.WARNING:
            return self._log.warning
        return self._log.info if level >= logging.INFO else self._log.debug


def route_logging(log: Log, level: LevelName = "info") -> None:
    """Sends what goes through the standard library's `logging` into the log, as events
    named `library`. Handlers that were there before are removed."""
    root = logging.getLogger()
    for handler in root.handlers[:]:
        root.removeHandler(handler)
    root.addHandler(_Router(log))
    root.setLevel(_LEVELS[level])
