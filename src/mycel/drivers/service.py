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

from mycel.core.resources import ServedModel

from .coroutines import CoroutineDriver
from .helper_client import Helper
from .http_stream import Endpoint
from .interface import DriverListener, Finished, Run
from .leftovers import remove_leftovers
from .model import ModelSource
from .model_program import ModelProgram
from .program_settings import ProgramSettings


class Offers(Protocol):
    """Who tells the schedulers what is served here."""

    def offer(self, provider: object, served: ServedModel, source: ModelSource) -> None: ...
    def withdraw(self, provider: object) -> None: ...


class ServiceDriver(CoroutineDriver):
    def __init__(
        self, helper: Helper, listener: DriverListener, root: Path, grace_seconds: float
    ) -> None:
        super().__init__(listener)
        root.mkdir(parents=True, exist_ok=True)
        self._helper = helper
        self._root = root.resolve()
        self._grace_seconds = grace_seconds
        remove_leftovers(self._root, "model-")
        self.offers: Offers | None = None
        """Set by whoever assembles the worker; without it nothing is served."""
        self.note: Callable[..., None] = _unheard

    @property
    def name(self) -> str:
        return "service"

    async def perform(self, run: Run) -> Finished:
        try:
            settings = msgspec.json.decode(run.work.parameters, type=ProgramSettings)
        except msgspec.MsgspecError as error:
            return Finished(run.attempt, "failed", error=f"what to serve cannot be read: {error}")
        ended = asyncio.Event()

        def changed(program: ModelProgram) -> None:
            if program.endpoint is None:
                ended.set()
            else:
                self._offer(program, program.endpoint)

        program = ModelProgram(
            self._helper, self._root, settings, changed, self.note, reloads=False
        )
        try:
            program.start()
            await ended.wait()
        finally:
            if self.offers is not None:
                self.offers.withdraw(program)
            await program.close(self._grace_seconds)
        return Finished(run.attempt, "failed", error=program.error, driver_fault=True)

    def _offer(self, program: ModelProgram, endpoint: Endpoint) -> None:
        settings = program.settings
        served = ServedModel(settings.name, settings.kind, settings.slots, settings.memory)
        source = ModelSource(settings.kind, endpoint, settings.name)
        if self.offers is not None:
            self.offers.offer(program, served, source)


def _unheard(event: str, **fields: object) -> None: ...
