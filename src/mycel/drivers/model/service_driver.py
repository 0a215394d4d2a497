"""The `service` driver: an attempt is a model that is served for as long as it runs.

The worker offers the model once it is ready. An attempt never succeeds: it ends when its
process does, which the scheduler answers with another one, or when it is killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from mycel.core.identifiers import LaneId
from mycel.core.model.model_names import full_name
from mycel.core.model.model_program import ServerSettings
from mycel.core.model.resources import ServedModel
from mycel.drivers.coroutine_lanes import CoroutineDriver
from mycel.drivers.helper.helper_client import HelperClient
from mycel.drivers.helper.leftovers import remove_leftovers
from mycel.drivers.interface import DriverListener, Finished, Run
from mycel.drivers.sandbox.run_confinement import RunConfinement
from mycel.drivers.task_devices import ConfinementPolicy

from .http_stream import Endpoint
from .model_driver import ModelSource
from .server_process import ModelProcess


class Offers(Protocol):
    """Who tells the schedulers what is served here."""

    def offer(self, provider: object, served: ServedModel, source: ModelSource) -> None: ...
    def withdraw(self, provider: object) -> None: ...


class ServiceDriver(CoroutineDriver):
    def __init__(
        self,
        helper: HelperClient,
        listener: DriverListener,
        root: Path,
        grace_seconds: float,
        policy: ConfinementPolicy,
    ) -> None:
        super().__init__(listener)
        root.mkdir(parents=True, exist_ok=True)
        self._helper = helper
        self._root = root.resolve()
        self._grace_seconds = grace_seconds
        self._policy = policy
        remove_leftovers(self._root, "model-")
        self.offers: Offers | None = None
        """Set by whoever assembles the worker; without it nothing is served."""
        self.shared_paths: tuple[str, ...] = ()
        """Folders of the machine that a service may read, even in a sandbox."""
        self.note: Callable[..., None] = _unheard

    @property
    def name(self) -> str:
        return "service"

    async def perform(self, lane: LaneId, run: Run) -> Finished:
        try:
            settings = msgspec.json.decode(run.work.parameters, type=ServerSettings)
        except msgspec.MsgspecError as error:
            return Finished(run.attempt, "failed", error=f"what to serve cannot be read: {error}")
        ended = asyncio.Event()

        def changed(program: ModelProcess) -> None:
            if program.endpoint is None:
                ended.set()
            else:
                self._offer(run.user, program, program.endpoint)

        program = ModelProcess(
            self._helper,
            self._root,
            settings,
            changed,
            self.note,
            reloads=False,
            confinement=self._confinement(lane, run, settings),
        )
        try:
            program.start()
            await ended.wait()
        finally:
            if self.offers is not None:
                self.offers.withdraw(program)
            await program.close(self._grace_seconds)
        return Finished(run.attempt, "failed", error=program.error, driver_fault=True)

    def close_lane(self, lane: LaneId) -> None:
        super().close_lane(lane)
        self._policy.cores.give_back(lane)

    def _confinement(self, lane: LaneId, run: Run, settings: ServerSettings) -> RunConfinement:
        """As of any task: it is its user's code, not the owner's. It reads what the task names
        only where the owner shares it."""
        named = [Path(one).resolve() for one in (settings.gguf, settings.folder) if one]
        shared = [Path(one).resolve() for one in self.shared_paths]
        readable = [
            str(one) for one in named if any(one.is_relative_to(folder) for folder in shared)
        ]
        confinement = self._policy.of(lane, run)
        return msgspec.structs.replace(confinement, readable=(*confinement.readable, *readable))

    def _offer(self, user: str, program: ModelProcess, endpoint: Endpoint) -> None:
        """Under a name that says whose it is, whatever its job says."""
        settings = program.settings
        name = full_name(user, settings.name)
        served = ServedModel(name, settings.kind, settings.slots, settings.memory)
        source = ModelSource(settings.kind, endpoint, settings.name)
        if self.offers is not None:
            self.offers.offer(program, served, source)


def _unheard(event: str, **fields: object) -> None: ...
