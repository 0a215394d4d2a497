"""What can go wrong for a client, and whose fault it is.

ClientError
├── NotRunning          nobody answers: start a swarm, or correct the address
├── NothingToSubmitTo   this machine has only nodes that joined: log in where the scheduler is
├── NotLoggedIn         there is no token for an address
├── ContextRefused      no such context, or its list is damaged
├── ConnectionLost      the scheduler went away in the middle; a retry can help
├── ApiError            it answered with a problem document
│   ├── Invalid             400, 413, 415, 422: the request is wrong
│   ├── Unauthorized        401, 403: the token is
│   ├── NotFound            404
│   ├── Conflict            409
│   └── Busy                429, 503: a retry can help
├── JobFileError        a job file is wrong; it says where
├── TaskFailed          the task's own fault
├── ModelFailed         in the middle of an answer
├── TaskCancelled
└── WaitTimedOut        it goes on; only the wait is over
"""

from __future__ import annotations

import msgspec


class ClientError(Exception):
    """Base of all errors of the client."""


class NotRunning(ClientError):
    def __init__(self, where: str, reason: str = "") -> None:
        because = f" ({reason})" if reason else ""
        super().__init__(f"no swarm is running at {where}{because}: start one with 'mycel up'")


class NothingToSubmitTo(ClientError):
    def __init__(self, home: str, joined: list[str]) -> None:
        super().__init__(
            f"no scheduler runs in {home}, only {', '.join(joined)} of another machine's swarm: "
            "'mycel login URL' with the address of its API lets this machine submit; its owner "
            "makes a token for it with 'mycel user add NAME'"
        )


class NotLoggedIn(ClientError):
    def __init__(self, api: str) -> None:
        super().__init__(
            f"there is no token for {api}: run 'mycel login {api}', give one with --token, or set "
            "MYCEL_TOKEN"
        )


class ContextRefused(ClientError):
    """For whoever named it, or wrote the file, to correct."""


class NotTrusted(ClientError):
    def __init__(self, where: str, reason: str) -> None:
        super().__init__(
            f"{where} shows a certificate that is not trusted ({reason}): name the file of whoever "
            "signed it in MYCEL_CA_FILE"
        )


class ConnectionLost(ClientError):
    """The connection broke before the answer was complete."""


class ApiError(ClientError):
    def __init__(self, status: int, title: str, detail: str, path: str = "") -> None:
        super().__init__(f"{detail} (at {path})" if path not in ("", "$") else detail)
        self.status = status
        self.title = title
        self.detail = detail
        self.path = path
        self.retry_after_seconds = 1.0


class Invalid(ApiError):
    """The request is wrong."""


class Unauthorized(ApiError):
    """The token is missing, wrong, or does not allow it."""


class NotFound(ApiError):
    """There is no such thing."""


class Conflict(ApiError):
    """It contradicts what is already there."""


class Busy(ApiError):
    """Not now: try again after `retry_after_seconds`."""


class JobFileError(ClientError):
    """For whoever wrote the file to correct."""


class TaskFailed(ClientError):
    """The task ended without success."""

    def __init__(self, task_id: str, error: str, exit_code: int | None = None) -> None:
        what = error or (f"exit code {exit_code}" if exit_code is not None else "no reason given")
        super().__init__(f"task {task_id} failed: {what}")
        self.task_id = task_id
        self.error = error
        self.exit_code = exit_code


class ModelFailed(ClientError):
    """In the middle of its answer."""

    def __init__(self, model: str, error: str) -> None:
        super().__init__(f"the model {model!r} failed: {error or 'no reason given'}")


class TaskCancelled(ClientError):
    def __init__(self, task_id: str) -> None:
        super().__init__(f"task {task_id} was cancelled")
        self.task_id = task_id


class WaitTimedOut(ClientError):
    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(f"{what} has not ended within {seconds:g} seconds; it goes on")


class _OpenAiError(msgspec.Struct):
    message: str = ""


class _Problem(msgspec.Struct):
    title: str = ""
    detail: str = ""
    path: str = ""
    error: _OpenAiError | None = None
    """What OpenAI's routes answer instead."""


_KINDS: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Unauthorized,
    404: NotFound,
    409: Conflict,
    413: Invalid,
    415: Invalid,
    422: Invalid,
    416: Invalid,
    429: Busy,
    503: Busy,
}


def from_answer(status: int, body: bytes, retry_after: str | None) -> ApiError:
    try:
        problem = msgspec.json.decode(body, type=_Problem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        problem = _Problem(detail=f"HTTP {status}: {body[:200].decode(errors='replace')}")
    kind = _KINDS.get(status, ApiError)
    said = problem.detail or (problem.error.message if problem.error else "")
    error = kind(status, problem.title, said or f"HTTP {status}", problem.path)
    if retry_after is not None and retry_after.isdigit():
        error.retry_after_seconds = float(retry_after)
    return error
