"""Mycel: a decentralised scheduler for AI work. `mycel.Client` talks to a swarm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .client import Client
    from .client.functions.async_client import AsyncClient
    from .client.functions.display import progress
    from .client.functions.executor import Executor
    from .client.functions.futures import Future, as_completed, gather, wait
    from .client.functions.joblib_backend import joblib_backend

__version__ = "0.1.0"
__all__ = [
    "AsyncClient",
    "Client",
    "Executor",
    "Future",
    "__version__",
    "as_completed",
    "gather",
    "joblib_backend",
    "progress",
    "task",
    "wait",
]

_FUNCTIONS: Final = "mycel.client.functions"
_PLACES: Final = {
    "AsyncClient": f"{_FUNCTIONS}.async_client",
    "Client": "mycel.client",
    "Executor": f"{_FUNCTIONS}.executor",
    "Future": f"{_FUNCTIONS}.futures",
    "as_completed": f"{_FUNCTIONS}.futures",
    "gather": f"{_FUNCTIONS}.futures",
    "joblib_backend": f"{_FUNCTIONS}.joblib_backend",
    "progress": f"{_FUNCTIONS}.display",
    "wait": f"{_FUNCTIONS}.futures",
}


def __getattr__(name: str) -> Any:
    # Late: tasks' interpreters and the command line import this package too.
    from importlib import import_module

    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    if name == "task":  # a module that can be called
        return import_module("mycel.task")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
