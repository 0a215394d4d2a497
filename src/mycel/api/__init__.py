"""The REST API of a scheduler: `bind`, then `serve`; `create_app` alone for other servers."""

from mycel.api.http.caller_limits import Limits
from mycel.api.http.server import ApiServer, CannotBind, PortInUse, bind, serve

from .app import create_app
from .backend import Backend, Stopping

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
