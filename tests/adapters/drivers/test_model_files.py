"""What a model gets whose input is a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mycel.core.model.model_program import Kind
from mycel.drivers.model import input_files
from mycel.drivers.model.model_requests import BadInput

DIGEST = "blake3:" + "0" * 64


def given(
    folder: Path, content: bytes, kind: Kind = "chat", media_type: str | None = None
) -> dict[str, Any]:
    (folder / "input").write_bytes(content)
    named = json.dumps({"blob": DIGEST, "media_type": media_type}).encode()
    assert input_files.names_a_file(named)
    found: dict[str, Any] = json.loads(input_files.with_content(kind, named, str(folder)))
    return found


def test_text_is_text_whatever_kind_of_text(tmp_path: Path) -> None:
    for media_type in (None, "text/plain", "text/markdown; charset=utf-8", "application/toml"):
        assert given(tmp_path, "ü".encode(), media_type=media_type) == {"text": "ü"}


def test_json_is_json_and_a_list_is_a_conversation_for_chat(tmp_path: Path) -> None:
    listed = b'[{"role": "user", "content": "a"}]'
    as_json = "application/json"
    assert given(tmp_path, listed, "chat", as_json) == {"messages": json.loads(listed)}
    assert given(tmp_path, listed, "embedding", as_json) == {"json": json.loads(listed)}
    assert given(tmp_path, b"{}", "chat", as_json) == {"json": {}}


def test_an_image_is_a_message_for_chat_and_bytes_for_models_of_ones_own(tmp_path: Path) -> None:
    [message] = given(tmp_path, b"\xff\x00", "chat", "image/png")["messages"]
    [part] = message["content"]
    assert part["image_url"]["url"] == "data:image/png;base64,/wA="
    found = given(tmp_path, b"\xff\x00", "custom", "audio/wav")
    assert found == {"json": {"base64": "/wA=", "media_type": "audio/wav"}}


@pytest.mark.parametrize(
    ("content", "kind", "media_type", "error"),
    [
        (b"\xff", "chat", None, "no UTF-8 text"),
        (b"\xff", "embedding", "audio/wav", "audio/wav, is no UTF-8 text"),
        (b"{", "chat", "application/json", "no JSON"),
    ],
)
def test_what_no_model_could_take_is_refused(
    tmp_path: Path, content: bytes, kind: Kind, media_type: str | None, error: str
) -> None:
    with pytest.raises(BadInput, match=error):
        given(tmp_path, content, kind, media_type)


def test_what_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_files, "INPUT_BYTES_MAX", 3)
    with pytest.raises(BadInput, match="4 bytes; 3 are the limit"):
        given(tmp_path, b"four")


@pytest.mark.parametrize("named", [DIGEST, "../secret", "/etc/passwd", "", None, 7, "missing"])
@pytest.mark.parametrize("has_folder", [True, False])
def test_nothing_but_files_of_the_task_is_read(
    tmp_path: Path, named: object, has_folder: bool
) -> None:
    (tmp_path / "secret").write_text("secret")
    folder = tmp_path / "run"
    folder.mkdir()
    with pytest.raises(BadInput, match="did not come along"):
        input_files.with_content(
            "chat", json.dumps({"blob": named}).encode(), str(folder) if has_folder else ""
        )


def test_other_inputs_stay_as_they_are(tmp_path: Path) -> None:
    for said in (b'"the word \\"blob\\""', b'{"text": "blob"}', b'{"json": {"blob": 1}}'):
        assert input_files.with_content("chat", said, str(tmp_path)) == said
