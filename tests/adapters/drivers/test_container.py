"""The `container` driver against a real podman: promises, limits, mounts, what is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mycel.core.model.work import Bounds, Work
from mycel.drivers.container.container_driver import ContainerSettings
from mycel.drivers.container.container_engine import LABEL, ContainerSpec, Engine, run_command
from mycel.drivers.container.engine_detection import NoEngine, find_engine
from mycel.drivers.interface import Driver
from mycel.drivers.registry import DriverContext, DriverFault, create_driver, offered_drivers
from mycel.testing.drivers.conformance import PROMISES, Harness, Promise, Subject, keep, named
from mycel.testing.drivers.conformance_harness import is_gone

from . import podman
from .podman import IMAGE

REASON = podman.missing()
real = pytest.mark.skipif(bool(REASON), reason=REASON)


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    with tempfile.TemporaryDirectory(prefix="mycel-") as name:  # podman wants short paths
        folder = Path(name)
        made = podman.private_engine(folder)
        podman.import_image(made, folder)
        yield made
        assert podman.call(made, "ps", "--all", "--quiet") == "", "containers are left"


class Containers(Subject):
    name = "container"

    def __init__(self, engine: Engine, **settings: Any) -> None:
        self._settings = ContainerSettings(engine=engine, **settings)

    def create(self, context: DriverContext) -> Driver:
        context = msgspec.structs.replace(context, containers=self._settings)
        return create_driver("container", context)

    def work(self, *command: str) -> Work:
        return Work("container", command=command, image=IMAGE)

    def quick(self) -> Work:
        return self.work("true")

    def slow(self) -> Work:
        return self.work("sleep", "1000")

    def failing(self) -> Work:
        return self.work("false")

    def talking(self, folder: Path) -> Work:
        return self.work("sh", "-c", "echo before; sleep 1000")

    def crashing(self) -> Work:
        # Who is process 1 cannot die of its own signal.
        return self.work("sh", "-c", "sh -c 'kill -SEGV $$'; exit $?")


@real
@pytest.mark.parametrize("promise", PROMISES, ids=named)
def test_promises(promise: Promise, engine: Engine, tmp_path: Path) -> None:
    keep(promise, Containers(engine), tmp_path)


@real
def test_a_container_gets_its_command_environment_and_folder(
    engine: Engine, tmp_path: Path
) -> None:
    async def scenario(harness: Harness) -> None:
        env = (("COLOUR", "grün"), ("PATH", "/bin"), ("LD_PRELOAD", "/no/such.so"))
        script = "env; cat /proc/self/status; echo here > file; ls; echo told >&2; exit 3"
        run = harness.run(("sh", "-c", script), image=IMAGE, env=env, number=2)
        end = await harness.result_of(run)
        assert (end.state, end.exit_code, end.stderr) == ("failed", 3, b"told\n")
        lines = end.stdout.decode().splitlines()
        for line in (
            "COLOUR=grün",
            "MYCEL_ATTEMPT=2",
            "MYCEL_WORKDIR=/work",
            f"MYCEL_TASK_ID={run.task_id}",
            "PWD=/work",
        ):
            assert line in lines, line
        capabilities = next(line for line in lines if line.startswith("CapEff"))
        assert int(capabilities.split()[1], 16) == 0
        assert "file" in lines
        filled = harness.run(("echo", "{word}"), image=IMAGE, arguments={"word": "hello"})
        assert (await harness.result_of(filled)).stdout == b"hello\n"

    keep(scenario, Containers(engine), tmp_path)


@real
def test_what_the_engine_can_complain_of(engine: Engine, tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        end = await harness.result_of(harness.run(("no-such-program",), image=IMAGE))
        assert (end.state, end.exit_code, end.driver_fault) == ("failed", 127, False)
        assert end.error == f"command not found in the image {IMAGE!r}: 'no-such-program'"
        end = await harness.result_of(harness.run(("/etc/passwd",), image=IMAGE))
        assert (end.state, end.exit_code, end.driver_fault) == ("failed", 126, False), end
        assert "'/etc/passwd' cannot be executed" in end.error
        end = await harness.result_of(harness.run(("true",), image="localhost/no-such-image:1"))
        assert end.state == "failed"
        assert (
            "the image 'localhost/no-such-image:1' is not here and cannot be fetched" in end.error
        )
        for name in ("--privileged", "docker-archive:/srv/image.tar"):
            end = await harness.result_of(harness.run(("true",), image=name))
            assert (end.state, end.driver_fault) == ("failed", False)
            assert f"{name!r} is no name of an image" in end.error
        broken = harness.run(("true",), image=IMAGE, env=(("A", "two\nlines"),))
        assert "line break" in (await harness.result_of(broken)).error
        for name in ("*\nA", "HOME\nA", "#A", " A"):
            odd = harness.run(("env",), image=IMAGE, env=((name, "value"),))
            end = await harness.result_of(odd)
            assert (end.state, end.driver_fault, end.stdout) == ("failed", False, b"")
            assert "is no variable" in end.error
        assert (await harness.result_of(harness.quick())).state == "succeeded"

    keep(scenario, Containers(engine), tmp_path)


@real
def test_an_engine_that_fails_is_not_the_tasks_fault(engine: Engine, tmp_path: Path) -> None:
    subject = Containers(engine, run_options=("--runtime=/no/such/runtime",))

    async def scenario(harness: Harness) -> None:
        end = await harness.result_of(harness.quick())
        assert (end.state, end.driver_fault) == ("failed", True)
        assert end.error.startswith("podman could not run the container: ")

    keep(scenario, subject, tmp_path)


@real
def test_limits_hold_and_are_named_when_they_kill(engine: Engine, tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        bounds = Bounds(memory_max=32 << 20, cores_max=0.5)
        places = "/sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max"
        more = "/sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max"
        show = harness.run(("sh", "-c", f"cat {places} {more} 2>&-"), image=IMAGE, bounds=bounds)
        assert (await harness.result_of(show)).stdout.split() == [b"%d" % (32 << 20), b"100"]
        hog = ("sh", "-c", "x=0123456789abcdef; while true; do x=$x$x; done")
        end = await harness.result_of(harness.run(hog, image=IMAGE, bounds=bounds))
        assert (end.state, end.exit_code, end.driver_fault) == ("failed", 137, False)
        assert "more than its 33554432 bytes of memory" in end.error

    keep(scenario, Containers(engine, processes_max=100), tmp_path)


@real
def test_there_is_no_network_unless_it_is_asked_for(engine: Engine, tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        look = harness.run(("ls", "/sys/class/net"), image=IMAGE)
        end = await harness.result_of(look)
        assert (end.state, end.error, end.stdout) == ("succeeded", "", b"lo\n")

    keep(scenario, Containers(engine), tmp_path)


@real
def test_only_what_the_owner_allows_is_mounted(engine: Engine, tmp_path: Path) -> None:
    shared, secret = tmp_path / "shared", tmp_path / "secret"
    (shared / "deep").mkdir(parents=True)
    (shared / "deep" / "file").write_text("content")
    secret.mkdir()
    (shared / "way-out").symlink_to(secret)
    subject = Containers(engine, allow_mounts=(str(shared),))

    async def scenario(harness: Harness) -> None:
        async def mounting(mount: str, *command: str) -> Any:
            return await harness.result_of(harness.run(command, image=IMAGE, mounts=(mount,)))

        end = await mounting(f"{shared}/deep:/data:ro", "cat", "/data/file")
        assert (end.state, end.stdout) == ("succeeded", b"content"), end.error
        end = await mounting(f"{shared}/deep:/data:ro", "touch", "/data/other")
        assert end.state == "failed"
        for source in (secret, shared / "way-out", shared / ".." / "secret", "/"):
            end = await mounting(f"{source}:/data", "true")
            assert (end.state, end.driver_fault) == ("failed", False)
            assert "allow_mounts" in end.error
        end = await mounting(f"{shared}/nothing:/data", "true")
        assert "no such path" in end.error
        end = await mounting(f"{shared}/deep:/data:U", "true")
        assert "is no mount" in end.error

    keep(scenario, subject, tmp_path)


@real
def test_everything_in_a_container_ends_with_it(engine: Engine, tmp_path: Path) -> None:
    subject = Containers(engine, allow_mounts=(str(tmp_path),))

    async def scenario(harness: Harness) -> None:
        script = "setsid sleep 4321 & trap '' TERM; touch /seen/it; sleep 1234"
        mounts = (f"{tmp_path}:/seen",)
        run = harness.run(("sh", "-c", script), image=IMAGE, mounts=mounts)
        harness.submit(run)
        await harness.until(lambda: (tmp_path / "it").exists())
        inside = processes_with(f"MYCEL_TASK_ID={run.task_id}")
        assert len(inside) >= 2
        harness.driver.kill([run.attempt])
        assert (await harness.end_of(run)).state == "cancelled"
        assert all(is_gone(process_id) for process_id in inside)

    keep(scenario, subject, tmp_path)


def processes_with(variable: str) -> list[int]:
    """Of containers; the engine's own processes have another working folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                variables = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if variable.encode() in variables and b"MYCEL_WORKDIR=/work" in variables:
                found.append(int(entry.name))
    return found


@real
def test_what_a_killed_worker_left_is_ended_at_the_next_start(
    engine: Engine, tmp_path: Path
) -> None:
    """The worker and its helper get SIGKILL at once: nobody is left to tidy up."""
    worker = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("container_worker.py")), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(msgspec.json.encode(engine) + b"\n")
        worker.stdin.flush()
        helper = int(worker.stdout.readline())
        os.kill(helper, signal.SIGKILL)
    finally:
        worker.kill()
        worker.communicate()
    left = podman.call(engine, "ps", "--quiet").split()
    assert len(left) == 1

    async def scenario(harness: Harness) -> None:
        assert (await harness.result_of(harness.quick())).state == "succeeded"
        assert podman.call(engine, "ps", "--all", "--quiet") == ""

    keep(scenario, Containers(engine), tmp_path)


def test_gpus_and_limits_in_the_words_of_each_engine() -> None:
    ask = ContainerSpec(
        name="n",
        worker="w",
        image="i",
        command=("c",),
        folder="/f",
        variables_file="/v",
        network=True,
        cores_of_its_own=(0, 3),
        gpus=(("nvidia", 0), ("nvidia", 2)),
    )
    podman_words = run_command(Engine("podman", "podman"), ask)
    docker_words = run_command(Engine("docker", "docker"), ask)
    assert "nvidia.com/gpu=2" in podman_words
    assert podman_words[podman_words.index("--cpuset-cpus") + 1] == "0,3"
    assert docker_words[docker_words.index("--gpus") + 1] == '"device=0,2"'
    amd = msgspec.structs.replace(ask, gpus=(("amd", 0),))
    for engine in (Engine("podman", "podman"), Engine("docker", "docker")):
        words = run_command(engine, amd)
        assert "/dev/kfd" in words
        assert "--network" not in words
        assert words[-2:] == ("i", "c")
    assert "none" in run_command(engine, msgspec.structs.replace(ask, network=False))


RUNS = "echo 'mycel-launch: a word is missing' >&2; exit 125"
"""What an engine says that has run what it was given."""


def test_an_engine_whose_runtime_fails_is_used_with_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crun, runc = tmp_path / "crun", tmp_path / "runc"
    for runtime in (crun, runc):
        runtime.touch(mode=0o755)
    program = tmp_path / "podman"
    script = f"case $1 in --runtime=runc) {RUNS} ;; *) echo Error: crun: no >&2; exit 126 ;; esac"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    memory = tmp_path / "deep" / "containers.json"
    found = find_engine(memory=memory)
    assert found.options == ("--runtime=runc",)
    assert "podman does not work: Error: crun: no" in found.remark
    assert find_engine(memory=memory) == found
    with pytest.raises(NoEngine, match="podman does not work: Error: crun: no"):
        find_engine(options=("--runtime=crun",))  # its owner has chosen
    runc.unlink()
    with pytest.raises(
        NoEngine, match=r"^podman does not work: Error: crun: no; docker is not installed$"
    ):
        find_engine(memory=memory)


@real
def test_the_engine_of_this_machine_is_found_by_running_a_container() -> None:
    found = find_engine("podman", ("--cgroup-manager=cgroupfs",))
    assert found.options[0] == "--cgroup-manager=cgroupfs"
    left = ("ps", "--all", "--quiet", "--filter", f"label={LABEL}=trial-{os.getpid()}")
    assert podman.call(found, *left) == ""
    with pytest.raises(NoEngine, match="no-such-runtime"):
        find_engine("podman", ("--runtime=no-such-runtime",))


def test_an_engine_is_asked_once_in_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "podman"
    program.write_text(f"#!/bin/sh\necho asked >> {tmp_path}/log\n{RUNS}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    memory = tmp_path / "containers.json"

    def asked() -> int:
        return len((tmp_path / "log").read_text().splitlines())

    first = find_engine(memory=memory)
    assert find_engine(memory=memory) == first
    assert asked() == 1
    find_engine(options=("--root=/elsewhere",), memory=memory)
    assert asked() == 2
    memory.write_text("nonsense")
    find_engine(memory=memory)
    assert asked() == 3
    find_engine()
    assert asked() == 4


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("echo cannot connect to the daemon >&2; exit 1", "cannot connect to the daemon"),
        ("exit 7", "exit code 7"),
    ],
)
def test_an_engine_that_does_not_work_says_why(
    script: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "docker"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoEngine, match=f"podman is not installed; docker does.*{complaint}"):
        find_engine()
    with pytest.raises(NoEngine, match="switched off"):
        find_engine("off")
    assert "container" not in offered_drivers(None)
    with pytest.raises(DriverFault, match="neither podman nor docker works"):
        create_driver("container", DriverContext(helper=None, listener=None, root=tmp_path))  # type: ignore[arg-type]
