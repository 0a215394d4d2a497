"""One file names many clusters; what is wrong in it costs its own clusters alone."""

from __future__ import annotations

import pickle
import traceback
from pathlib import Path

import pytest

from mycel.core.federation.reasons import Level
from mycel.federation.auth_file import AuthError, Secret, read_auth

FILE = """
[clusters.alpha]
token = "secret-alpha"

[clusters.beta]
token_file = "beta.token"

[groups.lab]
token = "secret-lab"
clusters = ["gamma", "delta"]
"""


def write(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "auth.toml"
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


def test_tokens_groups_and_token_files(tmp_path: Path) -> None:
    (tmp_path / "beta.token").write_text("secret-beta\n", encoding="utf-8")
    auth = read_auth(write(tmp_path, FILE))
    assert {name: one.reveal() for name, one in auth.tokens.items()} == {
        "alpha": "secret-alpha",
        "beta": "secret-beta",
        "gamma": "secret-lab",
        "delta": "secret-lab",
    }
    checked = auth.verified(lambda name, _: "expired" if name == "alpha" else "")
    assert checked["alpha"] is not None
    assert checked["alpha"].level is Level.TOKEN
    assert checked["beta"] is None


@pytest.mark.parametrize(
    "entry",
    [
        '[clusters."50%"]\ntoken = "x"',
        '[clusters."a\'; DROP TABLE clusters; --"]\ntoken = "x"',
        '[clusters."../etc"]\ntoken = "x"',
        '[clusters.wrong]\ntoken = ""',
        '[clusters.wrong]\ntoken = "two words"',
        "[clusters.wrong]\ntoken = 7",
        "[clusters.wrong]",
        '[clusters.wrong]\ntoken = "x"\ntoken_file = "y"',
        '[clusters.wrong]\ntoken_file = "missing.token"',
        '[clusters.wrong]\ntokn = "x"',
        '[groups.wrong]\ntoken = "x"',
        '[groups.lab]\ntoken = "x"\nclusters = ["b%"]',
    ],
)
def test_a_wrong_entry_drops_itself_alone(tmp_path: Path, entry: str) -> None:
    auth = read_auth(write(tmp_path, f'[clusters.good]\ntoken = "fine"\n{entry}\n'))
    assert set(auth.tokens) == {"good"}
    assert len(auth.problems) == 1


def test_a_cluster_that_is_named_twice_is_dropped(tmp_path: Path) -> None:
    text = '[clusters.a]\ntoken = "x"\n[groups.g]\ntoken = "y"\nclusters = ["a", "b"]\n'
    auth = read_auth(write(tmp_path, text))
    assert set(auth.tokens) == {"b"}
    assert "twice" in str(auth.problems["a"])


@pytest.mark.parametrize("text", ["", "clusters = 1", "other = 1", "[clusters", "[clusters]"])
def test_a_file_that_names_nothing_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(AuthError, match=r"auth\.toml"):
        read_auth(write(tmp_path, text))


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AuthError, match="chmod 600"):
        read_auth(write(tmp_path, FILE, 0o644))


def test_secrets_do_not_show(tmp_path: Path) -> None:
    secret = Secret("hunter2")
    assert "hunter2" not in repr(secret) + str(secret) + f"{secret}"
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    auth = read_auth(write(tmp_path, '[clusters.a]\ntoken = "hunter2 hunter2"\n'))
    assert "hunter2" not in str(auth.problems)
    try:
        read_auth(write(tmp_path, 'clusters.a.token = "hunter2\n'))
    except AuthError:
        assert "hunter2" not in traceback.format_exc().split("AuthError")[-1]
