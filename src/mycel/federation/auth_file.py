"""The file that names a user's clusters and holds the tokens for them.

    [clusters.alpha]
    token = "…"                       # or: token_file = "alpha.token"

    [groups.lab]                      # one token for several clusters
    token_file = "lab.token"
    clusters = ["beta", "gamma"]

An entry that is wrong drops its own clusters and is reported; the others stay. A file that
others can read is refused as a whole, since its tokens are no secrets any more.
"""

from __future__ import annotations

import re
import stat
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from mycel.core.federation.errors import FederationError
from mycel.core.federation.reasons import Level, Reason
from mycel.core.federation.registration import is_cluster_name

FILE_BYTES_MAX: Final = 1 << 20
TOKEN_MAX: Final = 8_192
CLUSTERS_MAX: Final = 10_000
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")

Check = Callable[[str, str], str]
"""Takes a cluster's name and a token; says what is wrong with it, or nothing."""


class AuthError(FederationError):
    """The file as a whole cannot be used."""


class Secret:
    """Text that no log, traceback or listing shows."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "Secret(…)"

    def __reduce__(self) -> Any:
        raise TypeError("secrets are not copied into messages")


class Auth:
    def __init__(self, tokens: Mapping[str, Secret], problems: Mapping[str, Reason]) -> None:
        self.tokens = dict(tokens)
        self.problems = dict(problems)
        """Clusters that are named, but cannot be used, and why."""

    def verified(self, check: Check) -> dict[str, Reason | None]:
        """For `ClusterTable.match`: each cluster that is named, None if its token is good."""
        found: dict[str, Reason | None] = dict(self.problems)
        for name, token in self.tokens.items():
            problem = check(name, token.reveal())
            found[name] = Reason(Level.TOKEN, problem) if problem else None
        return found


def read_auth(path: Path) -> Auth:
    """Raises AuthError, and OSError if the file cannot be read."""
    mode = path.stat()
    if mode.st_mode & (stat.S_IRGRP | stat.S_IROTH):
        raise AuthError(f"{path}: others can read it; run: chmod 600 {path}")
    if mode.st_size > FILE_BYTES_MAX:
        raise AuthError(f"{path}: is over {FILE_BYTES_MAX >> 20} MiB")
    try:
        value = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # also what is not UTF-8
        raise AuthError(f"{path}: this is not TOML: {error}") from None
    unknown = sorted(set(value) - {"clusters", "groups"})
    if unknown:
        raise AuthError(f"{path}: {unknown[0]!r} is not known; clusters and groups are")
    return _Reader(path.parent).read(value, str(path))


class _Reader:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tokens: dict[str, Secret] = {}
        self._problems: dict[str, Reason] = {}

    def read(self, value: dict[str, Any], place: str) -> Auth:
        for key in ("clusters", "groups"):
            if not isinstance(value.get(key, {}), dict):
                raise AuthError(f"{place}: {key!r} must be a table")
        for name, entry in value.get("clusters", {}).items():
            self._add([name], entry, frozenset(("token", "token_file")))
        for group, entry in value.get("groups", {}).items():
            names = entry.get("clusters") if isinstance(entry, dict) else None
            if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
                self._problems[group] = _reason("a group needs a list of 'clusters'")
                continue
            self._add(names, entry, frozenset(("token", "token_file", "clusters")))
        if len(self._tokens) + len(self._problems) > CLUSTERS_MAX:
            raise AuthError(f"{place}: names more than {CLUSTERS_MAX} clusters")
        if not self._tokens and not self._problems:
            raise AuthError(f"{place}: names no cluster")
        return Auth(self._tokens, self._problems)

    def _add(self, names: list[str], entry: Any, known: frozenset[str]) -> None:
        problem, token = self._token(entry, known)
        for name in names:
            wrong = problem
            if not is_cluster_name(name):
                wrong = "the name may have letters, digits, dot, dash and underscore alone"
            elif name in self._tokens or name in self._problems:
                wrong = "is named twice; one token is possible"
                self._tokens.pop(name, None)
            if wrong:
                self._problems[name] = _reason(wrong)
            else:
                assert token is not None
                self._tokens[name] = token

    def _token(self, entry: Any, known: frozenset[str]) -> tuple[str, Secret | None]:
        """Nothing of what is said about it repeats the token."""
        if not isinstance(entry, dict):
            return "must be a table with a token", None
        unknown = sorted(set(entry) - known)
        if unknown:
            return f"{unknown[0]!r} is not known here", None
        given = [key for key in ("token", "token_file") if key in entry]
        if len(given) != 1:
            return "needs exactly one of 'token' and 'token_file'", None
        text = entry[given[0]]
        if not isinstance(text, str):
            return f"{given[0]!r} must be a text", None
        if given[0] == "token_file":
            try:
                path = self._folder / text
                if path.stat().st_size > TOKEN_MAX:
                    return "the token file is too long", None
                text = path.read_text(encoding="utf-8").strip()
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or "is not text"
                return f"the token file cannot be read: {reason}", None
        if not text or len(text) > TOKEN_MAX or not _TOKEN.fullmatch(text):
            return "the token is empty, too long or has characters that no token has", None
        return "", Secret(text)


def _reason(text: str) -> Reason:
    return Reason(Level.TOKEN, text)
