"""The REST API of a scheduler: `bind`, then `serve`; `create_app` alone for other servers."""

from .app import create_app
from .backend import Backend, Stopping
from .limits import Limits
from .server import ApiServer, CannotBind, PortInUse, bind, serve

__all__ = [
    "ApiServer",
    "Backend",
    "CannotBind",
    "Limits",
    "PortInUse",
    "Stopping",
    "bind",
    "create_app",
    "serve",
]
