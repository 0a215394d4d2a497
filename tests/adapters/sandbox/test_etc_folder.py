"""What tasks see of /etc: copies of what everybody may read."""

from __future__ import annotations

from pathlib import Path

from mycel.drivers.sandbox.etc_folder import make_etc_folder
from mycel.testing.drivers.conformance import Harness

from .conftest import Play
from .subjects import needs_bubblewrap


def test_only_what_everybody_may_read_is_copied(tmp_path: Path) -> None:
    source, made = tmp_path / "etc", tmp_path / "made"
    (source / "ssl/private").mkdir(parents=True)
    (source / "ssl/private").chmod(0o700)
    (source / "ssl/private/key").write_text("secret")
    (source / "ssl/cert.pem").write_text("certificate")
    (source / "ssl/link").symlink_to("cert.pem")
    (source / "shadow").write_text("secret")
    (source / "passwd").write_text("root:x:0:0")
    (source / "passwd").chmod(0o640)
    (tmp_path / "hosts").write_text("127.0.0.1 localhost")
    (source / "hosts").symlink_to(tmp_path / "hosts")
    (source / "localtime").symlink_to("/usr/share/zoneinfo/UTC")
    (source / "fonts").symlink_to("/usr/share/no-such-fonts")
    (made / "left").mkdir(parents=True)
    make_etc_folder(made, source)
    found = {str(path.relative_to(made)) for path in made.rglob("*")}
    assert found - {"localtime", "fonts"} == {
        "ssl",
        "ssl/cert.pem",
        "ssl/link",
        "hosts",
        "resolv.conf",
    }
    assert (made / "ssl/link").read_text() == "certificate"
    assert (made / "hosts").read_text() == "127.0.0.1 localhost"
    assert not (made / "hosts").is_symlink(), "where it leads to, tasks see nothing"
    make_etc_folder(made, tmp_path / "nothing")
    assert [path.name for path in made.iterdir()] == ["resolv.conf"]


@needs_bubblewrap
def test_tasks_find_users_hosts_and_the_resolver(play: Play) -> None:
    script = "getent passwd root && getent hosts localhost && wc -c < /etc/resolv.conf"

    async def scenario(harness: Harness) -> None:
        end = await harness.result_of(harness.run(("sh", "-c", script)))
        assert end.exit_code == 0, end.stderr
        assert b"root:" in end.stdout
        assert end.stdout.split()[-1] == b"0", "without the network there is nobody to be asked"

    play("confined process", scenario)
