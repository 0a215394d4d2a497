"""Futures as arguments: a call that waits for others, and gets their values.

The call is sent when all of them have ended. A value is handed on as it travels: one that is
pickled is not unpickled here, and a long one, which is a blob, does not come here at all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from . import pickling
from .futures import Future
from .values import NAMED, POSITIONAL, NotJson, Pickled, json_value


def futures_in(positional: Iterable[Any], named: Mapping[str, Any]) -> list[Future[Any]]:
    return [one for one in (*positional, *named.values()) if isinstance(one, Future)]


def when_all_have_ended(futures: list[Future[Any]], call: Callable[[], None]) -> None:
    """Calls it in whichever thread sees the last of them end; at once if all have."""
    left = len(futures)
    lock = threading.Lock()

    def count(_: object) -> None:
        nonlocal left
        with lock:
            left -= 1
            is_last = left == 0
        if is_last:
            call()

    for future in futures:
        future.add_done_callback(count)


def arguments(
    function: Any, positional: tuple[Any, ...], named: Mapping[str, Any]
) -> pickling.Arguments:
    """With the values of futures that have ended; raises the failure of one that failed."""
    pickled = pickling.Pickled()

    def item(value: Any, path: str) -> Any:
        if isinstance(value, Future):
            value = value.travelling()
            if isinstance(value, Pickled):
                if isinstance(function, str):
                    raise NotJson(path, value)
                return dict(value)
        elif not isinstance(function, str) and not pickling.is_plain(value):
            return pickled.form_of(value)
        return json_value(value, path)

    given = {
        POSITIONAL: [item(one, f"$.arguments[{n}]") for n, one in enumerate(positional)],
        NAMED: {name: item(one, f"$.arguments.{name}") for name, one in named.items()},
    }
    return pickled.arguments(given)
