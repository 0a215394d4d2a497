"""What clients are told when something cannot be: RFC 9457 problem documents.

status  title
400     Malformed request        the body is no JSON
401     Not authenticated
403     Not allowed
404     Not found
405     Method not allowed
409     Conflict                 with what is already there
408     Request too slow
411     Length required
413     Request too large
415     Unsupported media type
416     Range not satisfiable
422     Unprocessable            well-formed, and wrong: `path` says where
429     Too many                 a retry can help: `Retry-After` says when
431     Header too large
500     Internal error           ours
503     Stopping                 a retry can help
507     No room                  for files: the disk is full, or the scheduler's limit reached
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from mycel.api.backend import Stopping
from mycel.core.errors import Conflict, NotFound, Refusal, TooMany, Unprocessable

Headers = list[tuple[bytes, bytes]]

MEDIA_TYPE: Final = b"application/problem+json"
TITLES: Final = {
    400: "Malformed request",
    401: "Not authenticated",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    411: "Length required",
    416: "Range not satisfiable",
    507: "No room",
    408: "Request too slow",
    413: "Request too large",
    415: "Unsupported media type",
    422: "Unprocessable",
    429: "Too many",
    431: "Header too large",
    500: "Internal error",
    503: "Stopping",
}


class ProblemDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    type: str
    title: str
    status: int
    detail: str
    path: str = ""
    """Where in the body, for example `$.requirements.cpu_cores`."""


_UNKNOWN_FIELD: Final = re.compile(r"unknown field `([^`]{1,100})`")


class Problem(Exception):
    """Raised anywhere in the API; the application answers with it."""

    def __init__(
        self, status: int, detail: str, *, path: str = "", headers: Headers | None = None
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.path = path
        self.headers = headers or []

    def encode(self) -> bytes:
        title = TITLES[self.status]
        kind = f"urn:mycel:problem:{title.lower().replace(' ', '-')}"
        document = ProblemDocument(kind, title, self.status, self.detail, self.path)
        return msgspec.json.encode(document)


def unprocessable(detail: str, path: str = "") -> Problem:
    return Problem(422, detail, path=path)


def not_found(what: str) -> Problem:
    return Problem(404, f"there is no {what}")


def from_decoding(error: msgspec.DecodeError) -> Problem:
    """msgspec says what and, behind it, where."""
    if not isinstance(error, msgspec.ValidationError):
        return Problem(400, f"the body is not valid JSON: {error}")
    message, at, path = str(error).rpartition(" - at `")
    message, path = (message, path.rstrip("`")) if at else (str(error), "$")
    unknown = _UNKNOWN_FIELD.search(message)
    return unprocessable(message + _near(unknown[1], path) if unknown else message, path)


def _near(name: str, path: str) -> str:
    """What was meant, if there is something like it."""
    from difflib import get_close_matches

    from mycel.api.submission.bodies import fields_at

    close = get_close_matches(name, fields_at(path), 1)
    return f"; did you mean `{close[0]}`?" if close else ""


def from_refusal(refusal: Refusal) -> Problem:
    match refusal:
        case NotFound():
            return Problem(404, refusal.detail)
        case Conflict():
            return Problem(409, refusal.detail)
        case Unprocessable():
            return unprocessable(refusal.detail)
        case TooMany():
            seconds = str(max(1, refusal.retry_after_seconds)).encode()
            return Problem(429, refusal.detail, headers=[(b"retry-after", seconds)])
    raise AssertionError(f"a refusal without a status: {refusal!r}")


def from_exception(error: Exception) -> Problem | None:
    """The problem that an expected error stands for, or nothing for a bug of ours."""
    match error:
        case Problem():
            return error
        case Refusal():
            return from_refusal(error)
        case msgspec.DecodeError():
            return from_decoding(error)
        case UnicodeDecodeError():
            return Problem(400, f"the body is not valid UTF-8: {error}")
        case RecursionError():  # of decoders; nothing here calls itself without end
            return Problem(400, "the body is nested too deeply")
        case Stopping():
            return Problem(
                503,
                "the scheduler is stopping; try again in a moment",
                headers=[(b"retry-after", b"1")],
            )
    return None
