"""What workers are called in lists: by their names, which are their hosts'."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from mycel.client import Client, Worker

PEER_LETTERS: Final = 6
"""Of the end of a peer id: its beginning is the same for all."""


def names_of(workers: Iterable[Worker]) -> dict[str, str]:
    """By peer id. Where two have one name, each has the end of its peer id behind it, by which it
    can be named as well."""
    known = list(workers)
    bearers = Counter(worker.name for worker in known)
    return {
        worker.peer_id: worker.name
        if worker.name and bearers[worker.name] == 1
        else f"{worker.name}~{worker.peer_id[-PEER_LETTERS:]}"
        for worker in known
    }


def shown_worker(peer: str | None, names: dict[str, str]) -> str:
    """One that is not known any more by the end of its peer id."""
    return "" if peer is None else names.get(peer, f"~{peer[-PEER_LETTERS:]}")


def worker_id(client: Client, text: str) -> str:
    """What the API takes: a name as lists show it may be of several."""
    if "~" not in text:
        return text
    names = names_of(client.workers())
    return next((peer for peer, name in names.items() if name == text), text)
