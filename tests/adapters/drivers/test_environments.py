"""Environments of tasks: built once, kept while there is room, and who pays for what fails."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mycel.core.model.requirements_text import checked_text
from mycel.core.model.work import Environment, Run, Work
from mycel.drivers.environments.build import EnvironmentSettings
from mycel.drivers.environments.environment_cache import (
    NO_UV,
    EnvironmentCache,
    find_uv,
)
from mycel.drivers.helper_commands import HelperCommands
from mycel.drivers.interface import Driver
from mycel.drivers.registry import DriverContext
from mycel.drivers.staged_driver import StagedDriver
from mycel.testing.drivers.conformance import PROMISES, Harness, Promise, Subject, keep, named
from mycel.testing.drivers.conformance_harness import OTHER_LANE, is_gone

from .subjects import Functions, Processes
from .wheels import make_wheel, requirements

UV = find_uv()
pytestmark = pytest.mark.skipif(UV is None, reason="uv is not installed")


class Within(Subject):
    """One of our drivers, with environments that are built by a uv that counts its builds."""

    def __init__(self, kind: str, folder: Path, text: str = "", **settings: Any) -> None:
        self._inner = {"python": Functions, "process": Processes}[kind]()
        self.name = kind
        self.folder = folder
        self.text = text
        self.settings = EnvironmentSettings(**settings)
        self.uv: str | None = self._counting_uv()

    def _counting_uv(self) -> str:
        """Waits while there is a file `confinement`."""
        script = self.folder / "uv"
        script.write_text(
            f"#!/bin/sh\necho $$ $1 >> {self.folder}/calls\n"
            f"test -d {self.folder}/wheels && export UV_FIND_LINKS={self.folder}/wheels\n"
            f"while test -e {self.folder}/hold; do sleep 0.02; done\n"
            f'exec {UV} "$@"\n'
        )
        script.chmod(0o755)
        return str(script)

    def calls(self) -> list[str]:
        file = self.folder / "calls"
        return file.read_text().splitlines() if file.exists() else []

    def create(self, context: DriverContext) -> Driver:
        environments = EnvironmentCache(
            context.root / "environments", HelperCommands(context), self.settings, lambda: self.uv
        )
        return StagedDriver(
            lambda listener: self._inner.create(
                msgspec.structs.replace(context, listener=listener)
            ),
            context.listener,
            preparations=[environments],
        )

    def _with(self, work: Work) -> Work:
        return msgspec.structs.replace(work, environment=Environment("", self.text))

    def quick(self) -> Work:
        return self._with(self._inner.quick())

    def slow(self) -> Work:
        return self._with(self._inner.slow())

    def failing(self) -> Work:
        return self._with(self._inner.failing())

    def crashing(self) -> Work:
        return self._with(self._inner.crashing())


def calling(harness: Harness, function: str, text: str, **options: Any) -> Run:
    return harness.run(function=function, environment=Environment("", text), **options)


def running(harness: Harness, command: tuple[str, ...], text: str, **options: Any) -> Run:
    return harness.run(command, environment=Environment("", text), **options)


def built(harness: Harness) -> set[str]:
    folders = (harness.folder / "root" / "environments").iterdir()
    return {folder.name for folder in folders if folder.is_dir()}


@pytest.mark.parametrize("kind", ["process", "python"])
@pytest.mark.parametrize("promise", PROMISES, ids=named)
def test_promises(promise: Promise, kind: str, tmp_path: Path) -> None:
    keep(promise, Within(kind, tmp_path), tmp_path)


def test_functions_and_processes_find_the_packages_of_their_environment(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    make_wheel(wheels, "tiny", "1.0", "def version(): return VERSION\n")
    make_wheel(wheels, "tiny", "2.0", "def version(): return VERSION\n")
    old, new = (requirements(f"tiny=={one}") for one in ("1.0", "2.0"))

    async def functions(harness: Harness) -> None:
        for text, version in ((old, b'"1.0"'), (new, b'"2.0"'), (old, b'"1.0"')):
            end = await harness.result_of(calling(harness, "tiny:version", text))
            assert (end.state, end.value) == ("succeeded", version), end.error
        end = await harness.result_of(harness.run(function="tiny:version"))
        assert end.state == "failed"
        assert "cannot import 'tiny'" in end.error

    async def processes(harness: Harness) -> None:
        end = await harness.result_of(running(harness, ("tiny",), old))
        assert (end.state, end.stdout) == ("succeeded", b"1.0\n"), end.error
        script = "import sys, tiny; print(tiny.VERSION, sys.prefix)"
        end = await harness.result_of(running(harness, ("python", "-c", script), new))
        version, prefix = end.stdout.decode().split()
        assert version == "2.0"
        assert Path(prefix).parent == harness.folder / "root" / "environments"

    subject = Within("python", tmp_path)
    keep(functions, subject, tmp_path)
    count = len(subject.calls())
    keep(processes, Within("process", tmp_path), tmp_path)
    assert len(subject.calls()) == count, "what an earlier worker has built is there"


def test_an_environment_is_built_once_for_many_tasks(tmp_path: Path) -> None:
    subject = Within("process", tmp_path, "# nothing\n")

    async def scenario(harness: Harness) -> None:
        runs = [harness.quick() for _ in range(20)]
        for number, run in enumerate(runs):
            harness.submit(run, lane=OTHER_LANE if number % 2 else 1)  # type: ignore[arg-type]
        await harness.all_ended()
        assert len(built(harness)) == 1
        assert len(subject.calls()) == 2  # to make it, and to fill it

    keep(scenario, subject, tmp_path)


def test_a_build_holds_up_nobody_else_and_no_time_out(tmp_path: Path) -> None:
    subject = Within("process", tmp_path, "# nothing\n")
    (tmp_path / "hold").touch()

    async def scenario(harness: Harness) -> None:
        first = running(harness, ("true",), subject.text, timeout=5.0)
        unwanted, killed = harness.quick(), harness.quick()
        harness.submit(first, unwanted, killed)
        await harness.until(subject.calls)
        other = harness.run(("true",))
        harness.submit(other, lane=OTHER_LANE)
        assert (await harness.end_of(other)).state == "succeeded"
        harness.driver.withdraw([unwanted.attempt])
        harness.driver.kill([killed.attempt])
        await harness.until(lambda: len(harness.recorder.taken_back) == 2)
        assert first.attempt not in harness.recorder.starts
        (tmp_path / "hold").unlink()
        end = await harness.end_of(first)
        assert (end.state, end.error) == ("succeeded", "")
        assert end.ended_at - end.started_at < 5.0

    keep(scenario, subject, tmp_path)


def test_close_ends_a_build_and_the_next_start_removes_what_is_half_built(tmp_path: Path) -> None:
    subject = Within("process", tmp_path, "# nothing\n")
    (tmp_path / "hold").touch()
    half_built = tmp_path / "root" / "environments" / "0123"
    half_built.mkdir(parents=True)
    (half_built / "pyvenv.cfg").touch()

    async def scenario(harness: Harness) -> None:
        assert not half_built.exists()
        harness.submit(harness.quick())
        await harness.until(subject.calls)

    keep(scenario, subject, tmp_path)
    assert is_gone(int(subject.calls()[0].split()[0]))
    assert list((tmp_path / "root" / "environments").iterdir()) == []


def test_a_build_that_fails_is_the_tasks_fault_and_not_tried_at_once_again(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    subject = Within("python", tmp_path, requirements("no-such-package==3"))

    async def scenario(harness: Harness) -> None:
        end = await harness.result_of(harness.quick())
        assert (end.state, end.driver_fault) == ("failed", False)
        first, *rest = end.error.splitlines()
        assert first.startswith("the environment cannot be built: ")
        assert any("no-such-package" in line for line in rest), end.error
        count = len(subject.calls())
        assert (await harness.result_of(harness.quick())).error == end.error
        assert len(subject.calls()) == count
        assert built(harness) == set()
        assert (await harness.result_of(harness.run(function="time:time"))).state == "succeeded"

    keep(scenario, subject, tmp_path)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("-r other.txt", "names another file"),
        ("--constraint=/etc/passwd", "names another file"),
        ("-e .", "names another file"),
        ("/etc/passwd", "a path on the worker's machine"),
        ("tiny @ ./tiny", "a path on the worker's machine"),
        ("tiny@file:///srv/tiny-1.0-py3-none-any.whl", "a path on the worker's machine"),
        ("file:tiny", "a path on the worker's machine"),
        ("a/../../srv/tiny-1.0-py3-none-any.whl  # a comment", "a path on the worker's machine"),
        ("tiny-1.0-py3-none-any.whl ; python_version > '3'", "a path on the worker's machine"),
        ("git+file:///srv/tiny", "a path on the worker's machine"),
        ("tiny @ git+ssh://git@example.org/tiny.git", "a path on the worker's machine"),
        ("--find-links /srv\ntiny", "a path on the worker's machine"),
        ("-f/srv\ntiny", "a path on the worker's machine"),
        ("--index-url=file:///srv\ntiny", "a path on the worker's machine"),
        ("--extra-index-url \\\n /srv\ntiny", "a path on the worker's machine"),
        ("-rother.txt", "names another file"),
        ('lock-version = "1.0"\n[[packages]]\ndirectory = {path = "/srv"}', "a path on"),
        ('lock-version = "1.0"\n[[packages.wheels]]\nurl = "file:///srv/a.whl"', "a path on"),
        ('lock-version = "1.0"\n[[packages', "cannot be read"),
        ("tiny  # a comment \\\n-r /etc/passwd", "names another file"),
        ("tiny --hash=sha256:00 -r /etc/passwd", "more than one thing"),
        ("--pre -r /etc/passwd", "more than one thing"),
        ("tiny @ srv", "a path on the worker's machine"),
        ("tiny @ HTTPS://..//..", "a path on the worker's machine"),
        ("..", "a path on the worker's machine"),
        ("tiny.tar", "a path on the worker's machine"),
        ("tiny --global-option=x", "neither a requirement nor an option"),
        ("tiny==${HOME}", "variables"),
        ("version = 1\nrevision = 2\n\n[[package]]\nname = 'a'\n", "uv export"),
        ("version = 1\n" * 20_000, "neither a requirement"),
        ("a\n" * 20_001, "at most 20000 lines"),
        ("a" * ((1 << 20) + 1), "at most 1 MiB"),
    ],
)
def test_a_text_that_no_worker_should_build(text: str, complaint: str, tmp_path: Path) -> None:
    subject = Within("python", tmp_path, text)

    async def scenario(harness: Harness) -> None:
        end = await harness.result_of(harness.quick())
        assert (end.state, end.driver_fault) == ("failed", False)
        assert complaint in end.error
        assert subject.calls() == []

    keep(scenario, subject, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "numpy==2.3.1\nscipy >=1,<2; python_version > '3.10' and extra == \"a\"\ntorch==2.1+cu1\n",
        "tiny[extra, more] @ https://example.org/tiny-1.0-py3-none-any.whl ; python_version>'3'\n",
        "https://me@example.org/tiny-1.0-py3-none-any.whl#sha256=0\n",
        "tiny @ git+https://example.org/tiny.git@v1\n",
        "-i https://example.org/simple\n--extra-index-url 'https://example.org/more'\n--pre\n",
        "--find-links=https://example.org/wheels\n--no-index\n--only-binary :all:\ntiny\n",
        (
            'lock-version = "1.0"\n[[packages]]\nname = "a"\nindex = "https://pypi.org/simple"\n'
            'wheels = [{ url = "https://example.org/a.whl", hashes = {} }]\n'
        ),
    ],
)
def test_what_tools_write_is_taken_as_it_is(text: str) -> None:
    assert checked_text(text) == text


def test_uv_sees_no_comments_and_no_lines_that_go_on() -> None:
    text = "\r\n".join(
        (
            "# all of it, with /a/path \\",
            "six==1.16.0 \\",
            f"    --hash=sha256:{'0' * 64} \\",
            f"    --hash=sha256:{'1' * 64}",
            "    # via -r requirements.in",
            "tiny\t# small",
        )
    )
    hashes = " ".join(f"--hash=sha256:{digit * 64}" for digit in "01")
    assert checked_text(text) == f"six==1.16.0 {hashes}\ntiny\n"


def test_the_owners_passwords_are_not_sent_to_whom_a_text_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login owner password secret\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))

    async def scenario(harness: Harness) -> None:
        heads: list[bytes] = []

        async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heads.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 401 -\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            writer.close()

        async with await asyncio.start_server(refuse, "127.0.0.1") as server:
            port = server.sockets[0].getsockname()[1]
            text = f"tiny @ http://127.0.0.1:{port}/tiny-1.0-py3-none-any.whl"
            end = await harness.result_of(calling(harness, "tiny:main", text))
        assert end.state == "failed"
        assert heads
        assert not any(b"authorization" in head.lower() for head in heads)

    subject = Within("python", tmp_path, allow_addresses=("127.0.0.1",))
    keep(scenario, subject, tmp_path)


def test_only_wheels_are_installed_unless_the_owner_allows_more(tmp_path: Path) -> None:
    source = tmp_path / "wheels" / "odd-1.0"
    source.mkdir(parents=True)
    (source / "setup.py").write_text(f"open('{tmp_path}/ran', 'w')\n")
    (source / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1.0\n")
    shutil.make_archive(str(source), "gztar", source.parent, source.name)
    subject = Within("process", tmp_path, requirements("odd"))

    async def scenario(harness: Harness) -> None:
        end = await harness.result_of(harness.quick())
        assert end.state == "failed"
        assert not (tmp_path / "ran").exists()

    keep(scenario, subject, tmp_path)


def test_a_worker_without_uv_says_what_to_install(tmp_path: Path) -> None:
    subject = Within("python", tmp_path)
    subject.uv = None

    async def scenario(harness: Harness) -> None:
        end = await harness.result_of(harness.quick())
        assert (end.state, end.driver_fault, end.error) == ("failed", True, NO_UV)

    keep(scenario, subject, tmp_path)


def test_the_least_recently_used_ones_make_room_but_none_in_use(tmp_path: Path) -> None:
    subject = Within("process", tmp_path, size_max=200_000)  # two empty ones, not three

    async def scenario(harness: Harness) -> None:
        staying = running(harness, ("sleep", "1000"), "# staying\n")
        harness.submit(staying)
        await harness.start_of(staying)
        (kept,) = built(harness)
        last: set[str] = set()
        for name in ("one", "two"):
            run = running(harness, ("true",), f"# {name}\n")
            harness.submit(run, lane=OTHER_LANE)
            assert (await harness.end_of(run)).state == "succeeded"
            assert len(built(harness)) == 2
            assert kept in built(harness)
            assert built(harness) != last
            last = built(harness)
        harness.driver.kill([staying.attempt])

    keep(scenario, subject, tmp_path)


def pypi_answers() -> bool:
    try:
        with socket.create_connection(("pypi.org", 443), timeout=2.0):
            return True
    except OSError:
        return False


@pytest.mark.skipif("not pypi_answers()", reason="PyPI cannot be reached from here")
def test_a_package_from_pypi_with_its_hash(tmp_path: Path) -> None:
    digest = "4721f391ed90541fddacab5acf947aa0d3dc7d27b2e1e8eda2be8970586c3274"
    text = f"six==1.17.0 --hash=sha256:{digest}\n"
    subject = Within("python", tmp_path)

    async def scenario(harness: Harness) -> None:
        run = calling(harness, "six:ensure_str", text, arguments=["hello"])
        end = await harness.result_of(run)
        assert (end.state, json.loads(end.value)) == ("succeeded", "hello"), end.error

    keep(scenario, subject, tmp_path)
