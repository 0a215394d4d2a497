"""Whose model a name means."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mycel.api.http.problems import Problem
from mycel.api.submission.model_owners import ModelNames, NamesUnreadable
from mycel.core.model.model_names import full_name, objection, resolve, split


class Served:
    """Names in a swarm where these are served, by their full names."""

    def __init__(self, *full: str, keep_at: Path | None = None) -> None:
        self.full = set(full)
        self.names = ModelNames(lambda name: name in self.full, lambda: self.full, keep_at)

    def serve(self, user: str, name: str) -> None:
        self.names._kept_up(name, user)
        self.full.add(full_name(user, name))


def test_a_bare_name_is_ones_own_or_the_owners() -> None:
    swarm = Served("llama", "alice//llama", "bob//llama", "bob//whisper")
    meant = swarm.names.meant
    assert meant("llama", "alice") == "alice//llama"
    assert meant("llama", "carol") == "llama"
    assert meant("llama", "owner") == "llama"
    assert meant("whisper", "alice") == "whisper", "nobody's, and not bob's"
    assert meant("whisper", "owner") == "whisper"
    assert meant("bob/whisper", "alice") == "bob//whisper"


def test_a_part_of_a_user_falls_back_to_the_whole_and_not_the_other_way() -> None:
    swarm = Served("alice//m", "bob/ci//m")
    assert swarm.names.meant("m", "alice/ci") == "alice//m"
    assert swarm.names.meant("m", "alice/ci/night") == "alice//m"
    assert swarm.names.meant("m", "bob") == "m"
    assert swarm.names.meant("bob/ci/m", "bob") == "bob/ci//m"


def test_a_user_who_is_named_like_the_owners_models_gets_nothing(tmp_path: Path) -> None:
    """Not while they are served, not when they are away, and not after a restart."""
    path = tmp_path / "names.json"
    swarm = Served("org/model", keep_at=path)
    swarm.serve("org", "model")
    assert swarm.names.meant("org/model", "alice") == "org/model"
    swarm.full.discard("org/model")
    assert swarm.names.meant("org/model", "alice") == "org/model"
    again = Served("org//model", keep_at=path)
    assert again.names.meant("org/model", "alice") == "org/model"
    assert again.names.meant("model", "org") == "org//model", "its own it has"


def test_a_model_that_is_named_like_a_user_takes_nothing_over(tmp_path: Path) -> None:
    swarm = Served(keep_at=tmp_path / "names.json")
    swarm.serve("alice", "model")
    assert swarm.names.meant("alice/model", "bob") == "alice//model"
    swarm.full.add("alice/model")
    assert swarm.names.meant("alice/model", "bob") == "alice//model"
    swarm.full.discard("alice//model")
    assert swarm.names.meant("alice/model", "bob") == "alice//model"
    assert swarm.names.meant("owner/alice/model", "bob") == "alice/model", "the owner's, in full"


def test_names_are_listed_as_they_can_be_used() -> None:
    swarm = Served("llama", "org/model", "alice//llama", "bob//llama")
    for one in ("alice", "bob"):
        swarm.serve(one, "llama")
    listed = {
        user: [swarm.names.as_written(full, user) for full in sorted(swarm.full)]
        for user in ("alice", "carol")
    }
    assert listed == {
        "alice": ["llama", "bob/llama", "owner/llama", "org/model"],
        "carol": ["alice/llama", "bob/llama", "llama", "org/model"],
    }


@pytest.mark.parametrize(
    "name",
    ["", "a//b", "/a", "a/", "a/../b", "./a", "a\nb", "a\x1b[2J", "a\u202eb", "a\x9bb", "x" * 257],
)
def test_names_that_no_model_has(name: str) -> None:
    assert objection(name) is not None


@pytest.mark.parametrize(
    ("user", "name"), [("bob", "alice/m"), ("bob", "bob/m"), ("bob", "a//m"), ("owner", "owner/m")]
)
def test_names_that_a_user_cannot_serve_under(user: str, name: str) -> None:
    with pytest.raises(Problem):
        Served().serve(user, name)


TEXTS = st.text(st.sampled_from("ab/."), max_size=8)


@given(TEXTS, TEXTS, TEXTS, TEXTS, st.sets(TEXTS), st.sets(TEXTS))
def test_nobody_reaches_a_stranger_without_naming_it(
    asker: str, asked: str, stranger: str, name: str, others: set[str], users: set[str]
) -> None:
    """Whatever users and models are called, and whatever else is served."""
    if not stranger or stranger == "owner" or "/" in name or objection(name) or objection(asked):
        return
    taken = full_name(stranger, name)
    served = others | {taken}
    found = resolve(asked, asker, served.__contains__, lambda prefix, _: prefix in users)
    if found != taken or asker == stranger or asker.startswith(f"{stranger}/"):
        return
    assert asked == f"{stranger}/{name}"
    assert split(taken) == (stranger, name)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"x": "somebody"}', '{"x": 1}'])
def test_a_damaged_file_of_names_says_what_to_do(tmp_path: Path, text: str) -> None:
    path = tmp_path / "model-names.json"
    path.write_text(text)
    with pytest.raises(NamesUnreadable, match="remove it"):
        Served(keep_at=path)
