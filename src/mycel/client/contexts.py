"""The swarms that this user has logged in to, each under a name: `mycel login` adds one.

They are in `mycel/contexts.json` below XDG_CONFIG_HOME, else ~/.config, for this user's eyes only:
the tokens are in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from .errors import ContextRefused

HOME_CONTEXT: Final = "home"
"""The name of the swarm that `mycel up` starts here; nobody logs in to it."""
NAME_RULE: Final = "a name has letters, digits, '.', ':', '-' and '_', at most 64"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:_-]{0,63}")
_WHAT: Final = "the list of contexts"


class Context(msgspec.Struct, frozen=True, omit_defaults=True):
    api: str
    token: str
    ca_file: str = ""
    """What an https:// address is held against; empty: the system's certificates."""


class Contexts(msgspec.Struct):
    current: str = ""
    """Empty: the home's."""
    contexts: dict[str, Context] = {}

    @property
    def shown_current(self) -> str:
        return self.current or HOME_CONTEXT

    def add(self, name: str, context: Context) -> None:
        """And use it from now on."""
        if name == HOME_CONTEXT or not _NAME.fullmatch(name):
            raise ContextRefused(f"{name!r} cannot name a context: {NAME_RULE}, and is not 'home'")
        self.contexts[name] = context
        self.current = name

    def use(self, name: str) -> None:
        if name != HOME_CONTEXT:
            self.named(name)
        self.current = "" if name == HOME_CONTEXT else name

    def remove(self, name: str) -> None:
        self.named(name)
        del self.contexts[name]
        if self.current == name:
            self.current = ""

    def named(self, name: str) -> Context:
        found = self.contexts.get(name)
        if found is None:
            known = ", ".join([HOME_CONTEXT, *sorted(self.contexts)])
            raise ContextRefused(f"there is no context {name!r}, only {known}")
        return found


def path_in(environment: Mapping[str, str]) -> Path:
    folder = environment.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(folder).expanduser() / "mycel" / "contexts.json"


def read(environment: Mapping[str, str]) -> Contexts:
    """None so far, if there is no such file."""
    path = path_in(environment)
    if not path.exists():
        return Contexts()
    from mycel.access.secret_files import read_secret_file

    content = read_secret_file(path, _WHAT)
    try:
        return msgspec.json.decode(content, type=Contexts)
    except msgspec.DecodeError as error:
        raise ContextRefused(f"{path} is damaged ({error}): correct it, or delete it") from None


def write(environment: Mapping[str, str], contexts: Contexts) -> None:
    from mycel.access.secret_files import replace_secret_file

    path = path_in(environment)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ContextRefused(f"{path.parent} cannot be created: {error.strerror}") from None
    content = msgspec.json.format(msgspec.json.encode(contexts), indent=2)
    replace_secret_file(path, content + b"\n")
