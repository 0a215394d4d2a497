"""Progress of many calls, in a notebook as a bar and elsewhere as a line on standard error."""

from __future__ import annotations

import html
import importlib
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

from .futures import Future, as_completed
from .mapping import Mapping

SHOWN_SECONDS: Final = 0.2
"""How often the picture changes."""


def progress(work: Mapping | Iterable[Any], label: str = "") -> Iterator[Any]:
    """Yields the values of a map, or each of some futures as it ends, and shows how far it is."""
    shown = _Shown(label)
    if isinstance(work, Mapping):
        with work:
            for done, value in enumerate(work, 1):
                shown.update(done, max(work.submitted, done))
                yield value
            shown.update(work.done, work.submitted, last=True)
        return
    futures: list[Future[Any]] = list(work)
    failed = 0
    for done, future in enumerate(as_completed(futures), 1):
        failed += future.cancelled() or future.exception() is not None
        shown.update(done, len(futures), failed, last=done == len(futures))
        yield future


class _Shown:
    def __init__(self, label: str) -> None:
        self._label = label
        self._began = time.monotonic()
        self._shown_at = -SHOWN_SECONDS
        self._display: Any = None
        self._in_notebook = _in_notebook()

    def update(self, done: int, total: int, failed: int = 0, *, last: bool = False) -> None:
        now = time.monotonic()
        if not last and now - self._shown_at < SHOWN_SECONDS:
            return
        self._shown_at = now
        seconds = now - self._began
        rate = done / seconds if seconds else 0.0
        text = f"{self._label or 'calls'}: {done:,} of {total:,}, {rate:,.0f}/s"
        text += f", {failed:,} failed" if failed else ""
        text += f", {seconds:.1f} s" if last else ""
        if self._in_notebook:
            self._show(text, done, total)
        elif sys.stderr.isatty():
            print(f"\r\x1b[K{text}", end="\n" if last else "", file=sys.stderr, flush=True)

    def _show(self, text: str, done: int, total: int) -> None:
        shown: Any = importlib.import_module("IPython.display")
        bar = f'<progress value="{done}" max="{max(total, 1)}"></progress> {html.escape(text)}'
        if self._display is None:
            self._display = shown.display(shown.HTML(bar), display_id=True)
        else:
            self._display.update(shown.HTML(bar))


def _in_notebook() -> bool:
    """Looked up, not imported: nobody who has no notebook pays for IPython."""
    module = sys.modules.get("IPython")
    shell = None if module is None else module.get_ipython()
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"
