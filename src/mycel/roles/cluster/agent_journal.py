"""The agent's journal: one line of JSON for each record, on disk before `append` returns.

A line that was being written when the machine died is cut off. The file is written anew, without
what is over, whenever the agent starts.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from mycel.access.secret_files import replace_secret_file
from mycel.core.agent.agent_effects import Closing, Ended, Entry, Forgotten, Intended
from mycel.core.agent.attempts import AttemptName

VERSION: Final = 1
FORGOTTEN_MAX: Final = 100_000


class JournalUnusable(Exception):
    """The file is not ours, or was changed by hand. A retry cannot help."""


class Header(msgspec.Struct, frozen=True, tag=True):
    version: int
    agent: str
    """Random, once for each journal: two agents of one user must not take each other's jobs."""
    boot: int


_decoder: Final = msgspec.json.Decoder(Header | Intended | Closing | Ended | Forgotten)


class AgentJournal:
    """Opening it is a start of the agent: `boot` counts them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        header, entries = self._read()
        old = header or Header(VERSION, secrets.token_hex(4), 0)
        self.agent: Final = old.agent
        self.boot: Final = old.boot + 1
        self.entries: Final = tuple(_still_needed(entries))
        lines = [Header(VERSION, self.agent, self.boot), *self.entries]
        replace_secret_file(path, b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def append(self, entry: Entry) -> None:
        data = msgspec.json.encode(entry) + b"\n"
        while data:
            data = data[os.write(self._descriptor, data) :]
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)

    def _read(self) -> tuple[Header | None, list[Entry]]:
        if not self._path.exists():
            return None, []
        *lines, _unfinished = self._path.read_bytes().split(b"\n")
        try:
            found = [_decoder.decode(line) for line in lines]
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise JournalUnusable(f"{self._path} cannot be read: {error}") from None
        if not found:
            return None, []
        header, entries = found[0], found[1:]
        if not isinstance(header, Header) or header.version != VERSION:
            raise JournalUnusable(f"{self._path} is no journal of version {VERSION}")
        if any(isinstance(entry, Header) for entry in entries):
            raise JournalUnusable(f"{self._path} has two headers")
        return header, [entry for entry in entries if not isinstance(entry, Header)]


def _still_needed(entries: Iterable[Entry]) -> list[Entry]:
    """The last word on each attempt; of a forgotten one, that it is."""
    by_name: dict[AttemptName, list[Entry]] = {}
    for entry in entries:
        kept = by_name.pop(entry.attempt, [])
        if isinstance(entry, Closing):
            kept = [one for one in kept if isinstance(one, Intended)]
        elif isinstance(entry, Ended | Forgotten):
            kept = []
        by_name[entry.attempt] = [*kept, entry]
    over = [kept for kept in by_name.values() if isinstance(kept[0], Forgotten)]
    too_old = {id(kept) for kept in over[: max(0, len(over) - FORGOTTEN_MAX)]}
    return [one for kept in by_name.values() if id(kept) not in too_old for one in kept]
