"""Attempts by other ways than a task's own program: its environment, a warm interpreter, what it
leaves for the worker to pick up, what it brings along."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mycel.blobs import trees
from mycel.blobs.blob_store import BlobStore
from mycel.blobs.errors import BadTree
from mycel.core.identifiers import AttemptId
from mycel.drivers.sandbox.run_confinement import Limits
from mycel.testing.drivers.conformance_harness import open_harness
from tests.adapters.drivers.subjects import deed, write_module
from tests.adapters.sandbox.subjects import (
    ConfinedFunctions,
    ConfinedProcesses,
    LimitedProcesses,
    needs_bubblewrap,
)

Record = Callable[[str, object], None]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="the controls need root")
_LIBRARY = """
#include <fcntl.h>
__attribute__((constructor)) static void begin(void) { open("%s", O_CREAT | O_WRONLY, 0666); }
"""


VICTIM = 1 << 50
_DEEDS = """
def forge():
    import struct
    head = struct.Struct("<QddBiIIIIQ").pack(VICTIM, 0.0, 0.0, 0, -1, 1, 0, 0, 0, 0) + b"7"
    os.write(3, struct.pack("<IB", len(head), 1) + head)
def swap():
    here = os.getcwd()
    os.chdir("/")
    os.rename(here, here + "-before")
    os.symlink("/etc", here)
def poison():
    import json
    json.JSONEncoder.encode = lambda *_: '"poisoned"'
    sys.modules["time"].time = lambda: "poisoned"
def hoard():
    taken = b"x" * (300 << 20)
    return len(taken)
def shorten():
    for name in os.listdir("/proc/self/fd"):
        try: os.ftruncate(int(name), 0)
        except OSError: pass
"""


def _tell(record: Record, *, escaped: bool, control: bool | None = None) -> None:
    if control is not None:
        record("attack_control", control)
    record("attack_escaped", escaped)
    assert not escaped
    assert control is not False, "without the sandbox it should succeed"


@needs_bubblewrap
@needs_root
@pytest.mark.parametrize("variable", ["LD_PRELOAD", "LD_AUDIT"])
def test_a_library_in_its_folder_runs_before_the_sandbox(
    variable: str, tmp_path: Path, record_property: Record
) -> None:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler to make a library with")
    tmp_path.chmod(0o755)

    def reaches_out(kind: type[ConfinedProcesses]) -> bool:
        folder = tmp_path / kind.__name__
        own = folder / "own"
        own.mkdir(parents=True)
        (folder / "modules").mkdir()
        trace = folder / "trace"
        source = folder / "library.c"
        source.write_text(_LIBRARY % trace)
        library = own / "library.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)

        async def perform() -> None:
            async with open_harness(kind(folder), folder) as harness:
                env = ((variable, str(library)),)
                await harness.result_of(harness.run(("true",), env=env, folder=str(own)))
                assert (await harness.result_of(harness.quick())).state == "succeeded"

        asyncio.run(perform())
        return trace.exists()

    control = reaches_out(LimitedProcesses)
    _tell(record_property, escaped=reaches_out(ConfinedProcesses), control=control)


def _calls(folder: Path, scenario: Callable[[Any], Any], **options: Any) -> Any:
    folder.chmod(0o755)
    write_module(folder)
    extra = _DEEDS.replace("VICTIM", str(VICTIM))
    module = folder / "modules" / "deeds.py"
    module.write_text(module.read_text() + extra)

    async def perform() -> Any:
        async with open_harness(ConfinedFunctions(folder, **options), folder) as harness:
            return await scenario(harness)

    return asyncio.run(perform())


@needs_bubblewrap
class TestWarmInterpreters:
    def test_forging_the_result_of_another(self, tmp_path: Path, record_property: Record) -> None:
        async def scenario(harness: Any) -> bool:
            await harness.result_of(deed(harness, "forge"))
            return bool(AttemptId(VICTIM) in harness.recorder.ends)

        _tell(record_property, escaped=_calls(tmp_path, scenario))

    def test_putting_a_link_in_place_of_its_folder(
        self, tmp_path: Path, record_property: Record
    ) -> None:
        own = tmp_path / "own"
        own.mkdir()

        async def scenario(harness: Any) -> bool:
            await harness.result_of(deed(harness, "swap", folder=str(own)))
            return own.is_symlink()

        _tell(record_property, escaped=_calls(tmp_path, scenario))
        assert own.is_dir()

    def test_leaving_poison_for_another_user(self, tmp_path: Path, record_property: Record) -> None:
        async def scenario(harness: Any) -> bool:
            await harness.result_of(deed(harness, "poison", user="mallory"))
            end = await harness.result_of(deed(harness, "value", "clean", user="alice"))
            return bool(json.loads(end.value) != "clean")

        _tell(record_property, escaped=_calls(tmp_path, scenario))

    def test_taking_the_interpreters_memory_away(
        self, tmp_path: Path, record_property: Record
    ) -> None:
        async def scenario(harness: Any) -> bool:
            await harness.result_of(deed(harness, "shorten"))
            end = await harness.result_of(deed(harness, "value", 1))
            return bool(end.state != "succeeded")

        _tell(record_property, escaped=_calls(tmp_path, scenario))

    def test_taking_much_memory(self, tmp_path: Path, record_property: Record) -> None:
        async def scenario(harness: Any) -> bool:
            end = await harness.result_of(deed(harness, "hoard"))
            assert end.error.startswith(("MemoryLimitExceeded", "MemoryError")), end.error
            assert not end.driver_fault
            assert (await harness.result_of(deed(harness, "value", 1))).state == "succeeded"
            return bool(end.state == "succeeded")

        limits = Limits(memory=100 << 20, processes=64)
        _tell(record_property, escaped=_calls(tmp_path, scenario, limits=limits))


HOSTILE_PATHS = [
    "../escaped",
    "/etc/escaped",
    "a/../../escaped",
    "a\\..\\escaped",
    "",
    "./x",
    "a//b",
]


@pytest.mark.parametrize("path", HOSTILE_PATHS)
def test_a_tree_with_a_path_out_of_its_folder(
    path: str, tmp_path: Path, record_property: Record
) -> None:
    store = BlobStore(tmp_path / "store", 1 << 30)
    (tmp_path / "file").write_text("x")
    digest = store.put_file(tmp_path / "file")
    target = tmp_path / "below" / "target"
    target.mkdir(parents=True)
    tree = trees.Tree([trees.TreeFile(path, digest, 1)])
    with pytest.raises(BadTree):
        trees.decode(msgspec.json.encode(tree))
    with pytest.raises(BadTree):
        trees.unfold(store, tree, target)
    _tell(record_property, escaped=any(tmp_path.rglob("escaped")))


@pytest.mark.parametrize("kind", ["link", "link to a folder", "pipe", "socket"])
def test_an_output_that_is_no_file(kind: str, tmp_path: Path, record_property: Record) -> None:
    store = BlobStore(tmp_path / "store", 1 << 30)
    folder, secret = tmp_path / "outputs", tmp_path / "secret"
    folder.mkdir()
    secret.mkdir()
    (secret / "key").write_text("the owl")
    match kind:
        case "link":
            (folder / "out").symlink_to(secret / "key")
        case "link to a folder":
            (folder / "out").symlink_to(secret)
        case "pipe":
            os.mkfifo(folder / "out")
        case _:
            os.mknod(folder / "out", 0o140644)
    with pytest.raises(BadTree):
        trees.fold(store, folder)
    taken = [one for one in (tmp_path / "store").rglob("*") if one.is_file()]
    _tell(record_property, escaped=any("owl" in one.read_text() for one in taken))
