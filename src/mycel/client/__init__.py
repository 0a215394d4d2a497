"""A client of a swarm's REST API, in Python."""

from .client import Client
from .errors import (
    ApiError,
    Busy,
    ClientError,
    Conflict,
    ConnectionLost,
    Invalid,
    NotFound,
    NotRunning,
    TaskCancelled,
    TaskFailed,
    Unauthorized,
    WaitTimedOut,
)
from .responses import Explanation, Job, Logs, Result, Task, Worker

__all__ = [
    "ApiError",
    "Busy",
    "Client",
    "ClientError",
    "Conflict",
    "ConnectionLost",
    "Explanation",
    "Invalid",
    "Job",
    "Logs",
    "NotFound",
    "NotRunning",
    "Result",
    "Task",
    "TaskCancelled",
    "TaskFailed",
    "Unauthorized",
    "WaitTimedOut",
    "Worker",
]
