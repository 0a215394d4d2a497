"""Python and Mycel are found behind the walls wherever they lie, and by whatever links."""

from __future__ import annotations

from pathlib import Path

from mycel.drivers.sandbox.bubblewrap import links_on_the_way


def test_links_outside_of_what_is_seen_are_told(tmp_path: Path) -> None:
    real = tmp_path / "real" / "bin"
    real.mkdir(parents=True)
    (real / "python3.11").touch()
    (real / "python3").symlink_to("python3.11")
    (tmp_path / "farm").mkdir()
    (tmp_path / "farm" / "python").symlink_to("../alias/bin/python3")
    (tmp_path / "alias").symlink_to("real")
    found = links_on_the_way((f"{tmp_path}/farm/python",), (f"{tmp_path}/real",))
    assert found == {
        f"{tmp_path}/farm/python": "../alias/bin/python3",
        f"{tmp_path}/alias": "real",
    }


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    found = links_on_the_way((f"{tmp_path}/one/python",), ())
    assert set(found) == {f"{tmp_path}/one", f"{tmp_path}/two"}


def test_paths_without_links_need_none(tmp_path: Path) -> None:
    assert links_on_the_way((str(tmp_path.resolve()), "/usr/nowhere/at/all"), ()) == {}
