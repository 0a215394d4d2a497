"""Names of models, as callers write them, and whose they are.

Whether `x` of `x/model` is a user or a part of the owner's names is settled once, by whichever is
there first, and kept: neither a user who is named like the beginning of a model, nor a model that
is named like a user, takes over requests that went elsewhere before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, Literal

import msgspec

from mycel.api.http.problems import Problem, unprocessable
from mycel.core.model.jobs import Specification
from mycel.core.model.model_names import (
    BOUNDARY,
    full_name,
    objection,
    objection_to_serving,
    resolve,
    root_of,
    split,
)
from mycel.core.model.work import DEFAULT_USER, SERVICE

PREFIXES_MAX: Final = 10_000
"""Beyond so many, nothing more is settled: new prefixes are the owner's."""
Whose = Literal["user", "owner"]
USERS: Final = "user"
OWNERS: Final = "owner"


class NamesUnreadable(Exception):
    """The file is damaged; the message says what to do."""


class ModelNames:
    def __init__(
        self,
        exists: Callable[[str], bool],
        served: Callable[[], Iterable[str]],
        keep_at: Path | None = None,
    ) -> None:
        """`exists`: whether anybody serves, or is to serve, that full name; `served` are those
        that workers serve. Raises `NamesUnreadable`."""
        self._exists = exists
        self._served = served
        self._keep_at = keep_at
        self._settled: dict[str, Whose] = {}
        if keep_at is not None and keep_at.exists():
            self._settled = _read(keep_at)

    def meant(self, asked: str, user: str) -> str:
        """The full name. Raises a 422."""
        wrong = objection(asked)
        if wrong is not None:
            raise unprocessable(wrong, "$.model")
        return resolve(asked, user, self._exists, self._settle)

    def of_caller(self, specification: Specification, user: str) -> Specification:
        """With the full name of the model that it asks for, or serves."""
        work = specification.work
        if not work.model:
            return specification
        full = self._kept_up(work.model, user) if work.driver == SERVICE else ""
        work = msgspec.structs.replace(work, model=full or self.meant(work.model, user))
        return msgspec.structs.replace(specification, work=work)

    def as_written(self, full: str, user: str) -> str | None:
        """How this user asks for it; None if there is no way."""
        owner, name = split(full)
        for text in (name, f"{owner}/{name}"):
            if resolve(text, user, self._exists, self._is_users) == full:
                return text
        return None

    def _kept_up(self, name: str, user: str) -> str:
        wrong = objection_to_serving(name, user)
        if wrong is not None:
            raise unprocessable(wrong, "$.serve.name")
        root = root_of(user)
        if root != DEFAULT_USER and root not in self._settled:
            begins = f"{root}/"
            taken = any(one.startswith(begins) and BOUNDARY not in one for one in self._served())
            if not self._put_down(root, OWNERS if taken else USERS):
                raise Problem(429, f"there are {PREFIXES_MAX} users with models already")
        return full_name(user, name)

    def _settle(self, prefix: str, asked: str) -> bool:
        if prefix not in self._settled:
            if self._exists(asked):
                self._put_down(prefix, OWNERS)
            elif self._exists(BOUNDARY.join(asked.rsplit("/", 1))):
                self._put_down(prefix, USERS)
        return self._is_users(prefix, asked)

    def _is_users(self, prefix: str, asked: str) -> bool:
        """Without settling anything."""
        whose = self._settled.get(prefix)
        if whose is not None:
            return whose == USERS
        return not self._exists(asked) and self._exists(BOUNDARY.join(asked.rsplit("/", 1)))

    def _put_down(self, prefix: str, whose: Whose) -> bool:
        if len(self._settled) >= PREFIXES_MAX:
            return False
        self._settled[prefix] = whose
        if self._keep_at is not None:
            temporary = self._keep_at.with_suffix(".new")
            temporary.write_bytes(msgspec.json.encode(self._settled))
            temporary.replace(self._keep_at)
        return True


def _read(path: Path) -> dict[str, Whose]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Whose])
    except msgspec.DecodeError as error:
        raise NamesUnreadable(
            f"{path} cannot be read: {error}; restore it, or remove it to settle anew whose "
            "models names mean"
        ) from error
