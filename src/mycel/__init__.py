"""Mycel: a decentralised scheduler for AI work. `mycel.Client` talks to a swarm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .client import Client
    from .client.functions.futures import Future, as_completed, gather, wait

__version__ = "0.1.0"
__all__ = ["Client", "Future", "__version__", "as_completed", "gather", "task", "wait"]

_FUTURES: Final = "mycel.client.functions.futures"
_PLACES: Final = {
    "Client": "mycel.client",
    "Future": _FUTURES,
    "as_completed": _FUTURES,
    "gather": _FUTURES,
    "wait": _FUTURES,
}


def __getattr__(name: str) -> Any:
    # Late: tasks' interpreters and the command line import this package too.
    from importlib import import_module

    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    if name == "task":  # a module that can be called
        return import_module("mycel.task")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
