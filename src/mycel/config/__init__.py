"""The configuration of a node: `load` reads it, `Configuration` holds it."""

from .errors import ConfigurationError
from .loader import load
from .settings import Configuration

__all__ = ["Configuration", "ConfigurationError", "load"]
