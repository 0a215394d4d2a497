"""Selections by name: those built in, and those that other packages bring as entry points."""

from __future__ import annotations

from typing import Any, Final, cast

from mycel.core.federation.cluster_selection import SIMPLE, Selector
from mycel.core.federation.errors import FederationError
from mycel.core.federation.selection_steps import selector
from mycel.plugins import installed

GROUP: Final = "mycel.cluster_selectors"
BUILT_IN: Final = (*SIMPLE, "constraint", "weighted")


class UnknownSelector(FederationError):
    """A job names a selection that is not installed."""


def make_selector(name: str, options: Any = None) -> Selector:
    """Raises UnknownSelector, and ExpressionError for options that are wrong."""
    found = selector(name, options)
    if found is not None:
        return found
    plugged = installed(GROUP)
    if name not in plugged:
        known = ", ".join((*BUILT_IN, *sorted(plugged)))
        raise UnknownSelector(f"there is no selection {name!r}; there are {known}")
    return cast("Selector", plugged[name].load()(options))
