"""Containers for a benchmark: the engine of this machine, and an image of next to nothing."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from mycel.drivers.container.container_engine import Engine
from mycel.drivers.container.engine_detection import NoEngine, find_engine

from .driver_runs import NotMeasured, Order

OWN_IMAGE: Final = "localhost/mycel-bench:latest"
CALL_SECONDS_MAX: Final = 120.0


class Containers:
    """An image that it has made is removed at the end."""

    def __init__(self, options: tuple[str, ...], image: str | None, wanted: bool) -> None:
        self._options = options
        self._image = image
        self._wanted = wanted
        self._engine: Engine | None = None
        self._reason = ""

    def __enter__(self) -> Self:
        if self._wanted:
            try:
                self._engine = find_engine("auto", self._options)
                if self._image is None:
                    self._make_image(self._engine)
            except (NoEngine, NotMeasured) as reason:
                self._reason = str(reason)
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _where: TracebackType | None,
    ) -> None:
        if self._engine is not None and self._image is None:
            self._call(self._engine.command("rmi", "--force", OWN_IMAGE))

    def order(self) -> Order:
        """Raises `NotMeasured`."""
        if self._engine is None or self._reason:
            raise NotMeasured(self._reason)
        image = self._image or OWN_IMAGE
        return Order(driver="container", count=0, folder="", engine=self._engine, image=image)

    def bare_per_s(self, count: int, in_flight: int) -> float:
        """The engine alone, with the same walls around the same nothing."""
        assert self._engine is not None
        image = self._image or OWN_IMAGE
        words = ("run", "--rm", "--network=none", "--pull=never", "--log-driver=none")
        limits = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024")
        command = self._engine.command(*words, *limits, image, "true")
        running: list[subprocess.Popen[bytes]] = []
        codes: set[int] = set()
        began = time.perf_counter()
        for _ in range(count):
            if len(running) == in_flight:
                codes.add(running.pop(0).wait())
            running.append(
                subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            )
        codes.update(process.wait() for process in running)
        seconds = time.perf_counter() - began
        if codes != {0}:
            raise NotMeasured(f"{self._engine.name} alone ends with exit code {max(codes)}")
        return count / seconds

    def _make_image(self, engine: Engine) -> None:
        busybox = shutil.which("busybox")
        if busybox is None:
            raise NotMeasured("no image: give --image NAME, or install busybox-static")
        with tempfile.TemporaryDirectory() as folder:
            archive = Path(folder) / "image.tar"
            with tarfile.open(archive, "w") as tar:
                tar.add(busybox, "bin/busybox")
                link = tarfile.TarInfo("bin/true")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(link)
            done = self._call(engine.command("import", str(archive), OWN_IMAGE))
        if done.returncode:
            raise NotMeasured(f"{engine.name} import: {done.stderr.strip()}")

    def _call(self, command: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=CALL_SECONDS_MAX, check=False
        )
