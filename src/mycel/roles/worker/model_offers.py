"""The models that a worker offers: of servers beside it, and what it loads itself.

A server's models are offered as the owner says. What is loaded in a process of its own is
offered when it is ready to answer. When that process ends it is loaded again; requests wait for
it meanwhile, unless it ends again and again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from mycel.config.settings import Model, Worker
from mycel.core.model.model_program import ServerSettings
from mycel.core.model.resources import ServedModel
from mycel.devices import host
from mycel.drivers.helper.helper_client import HelperClient
from mycel.drivers.helper.leftovers import remove_leftovers
from mycel.drivers.interface import Driver
from mycel.drivers.model.gguf import NotGguf, read_gguf
from mycel.drivers.model.http_stream import Endpoint
from mycel.drivers.model.model_driver import ModelDriver, ModelSource
from mycel.drivers.model.server_process import ModelProcess
from mycel.drivers.model.service_driver import ServiceDriver
from mycel.drivers.staged_driver import StagedDriver
from mycel.membership.member import NoteLine
from mycel.roles.role_process import RoleFault

from .model_server_search import Finding

GGUF_SLOTS: Final = 4
ENDINGS_MAX: Final = 5
"""A model that has ended so often in a row is not promised to anybody until it is ready."""


TROUBLE_CHARACTERS_MAX: Final = 500


class Offering:
    def __init__(
        self,
        drivers: list[Driver],
        serve: Callable[[tuple[ServedModel, ...]], None],
        helper: HelperClient,
        root: Path,
        note: NoteLine,
    ) -> None:
        inner = [one.inner if isinstance(one, StagedDriver) else one for one in drivers]
        self._drivers = [one for one in inner if isinstance(one, ModelDriver)]
        """None where the owner wants no models here."""
        self._services = [one for one in drivers if isinstance(one, ServiceDriver)]
        self._serve = serve
        self._helper = helper
        self._root = root
        self._note = note
        self._offered: dict[object, tuple[ServedModel, ModelSource | None]] = {}
        """By whatever provides it."""
        self._programs: list[ModelProcess] = []
        self._finding: Finding | None = None

    def start(self, worker: Worker) -> None:
        if not self._drivers:
            return
        for service in self._services:
            service.offers, service.note = self, self._note
            service.shared_paths = worker.shared_paths
        self._root.mkdir(parents=True, exist_ok=True)
        remove_leftovers(self._root, "model-")
        for name, model in worker.models.items():
            served = footprint(name, model)
            if model.endpoint:
                endpoint = Endpoint(model.endpoint, model.key)
                source = ModelSource(model.kind, endpoint, model.served_as or name)
                self._offered[name] = (served, source)
            else:
                self._load(program_settings(served, model, worker), served)
        self._tell()
        self._finding = Finding(worker, self.offer, self.withdraw, self._note)
        self._finding.start()

    async def close(self) -> None:
        if self._finding is not None:
            await self._finding.close()
        for program in self._programs:
            await program.close()

    def offer(self, provider: object, served: ServedModel, source: ModelSource | None) -> None:
        self._offered[provider] = (served, source)
        self._tell()

    def withdraw(self, provider: object) -> None:
        if self._offered.pop(provider, None) is not None:
            self._tell()

    def _load(self, settings: ServerSettings, served: ServedModel) -> None:
        def changed(program: ModelProcess) -> None:
            if program.endpoint is not None:
                source = ModelSource(settings.kind, program.endpoint, served.name)
                self.offer(program, served, source)
            else:
                promised = program in self._offered and program.endings < ENDINGS_MAX
                down = msgspec.structs.replace(
                    served,
                    slots=0,
                    trouble=program.error[:TROUBLE_CHARACTERS_MAX],
                    promised=promised and self._offered[program][0].promised,
                )
                self.offer(program, down, None)

        program = ModelProcess(self._helper, self._root, settings, changed, self._note)
        self._programs.append(program)
        program.start()

    def _tell(self) -> None:
        sources: dict[str, list[ModelSource]] = {}
        together: dict[str, ServedModel] = {}
        for served, source in self._offered.values():
            if source is not None:
                sources.setdefault(served.name, []).append(source)
            before = together.get(served.name)
            together[served.name] = served if before is None else _both(before, served)
        for driver in self._drivers:
            driver.serve(sources)
        self._serve(tuple(together[name] for name in sorted(together)))


def footprint(name: str, model: Model) -> ServedModel:
    """What it takes: as declared, and derived where it is not."""
    memory, slots = int(model.memory), model.concurrency
    if model.gguf:
        slots = slots or GGUF_SLOTS
        try:
            facts = read_gguf(Path(model.gguf).expanduser())
        except NotGguf as error:
            raise RoleFault(f"worker.models.{name}: {error}") from None
        memory = memory or facts.memory(slots * model.context)
    slots = slots or (model.batch if model.python else 1)
    return ServedModel(name, model.kind, slots, memory, int(model.gpu_memory))


def program_settings(served: ServedModel, model: Model, worker: Worker) -> ServerSettings:
    cores = host.cpu_cores() if worker.cpu_cores is None else worker.cpu_cores
    return ServerSettings(
        name=served.name,
        kind=model.kind,
        python=model.python,
        gguf=str(Path(model.gguf).expanduser().resolve()) if model.gguf else "",
        folder=str(Path(model.folder).expanduser().resolve()) if model.folder else "",
        slots=served.slots,
        batch=model.batch,
        context=model.context,
        threads=model.threads or max(1, int(cores)),
        gpu_layers=model.gpu_layers,
        memory=served.memory,
    )


def _both(one: ServedModel, other: ServedModel) -> ServedModel:
    return ServedModel(
        one.name,
        one.kind,
        one.slots + other.slots,
        one.memory + other.memory,
        one.gpu_memory + other.gpu_memory,
        "" if one.slots or other.slots else one.trouble or other.trouble,
        one.promised or other.promised,
    )
