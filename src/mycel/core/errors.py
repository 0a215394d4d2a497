"""What can go wrong in the core, and whose fault it is.

    CoreError
    ├── WrongStep            ours: a transition that the tables do not allow
    ├── TooLong              the client's: what a task's texts would become
    └── Refusal              the client's: nothing was changed
        ├── NotFound             404
        ├── Conflict             409
        ├── Unprocessable        422
        └── TooMany              429, a retry can help

A refusal is a value that a machine replies with, never raised out of `handle`.
"""

from __future__ import annotations


class CoreError(Exception):
    """Base of all errors of the core."""


class WrongStep(CoreError):
    """Our own fault: a step that the table does not allow."""

    def __init__(self, subject: str, state: str, step: str) -> None:
        super().__init__(f"a {subject} that is {state} cannot {step}")


class TooLong(CoreError):
    """What a task's texts would become, once they are filled."""


class Refusal(CoreError):
    """The client asked for something that cannot be."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class NotFound(Refusal):
    """There is no such job or task."""


class Conflict(Refusal):
    """It contradicts what is already there."""


class Unprocessable(Refusal):
    """It is well-formed, and no swarm could ever do it."""


class TooMany(Refusal):
    """A limit is reached for now."""

    def __init__(self, detail: str, retry_after_seconds: int) -> None:
        super().__init__(detail)
        self.retry_after_seconds = retry_after_seconds
