"""A node's own metrics, where its configuration says that they are to be seen."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from .role_process import Program, RoleFault

if TYPE_CHECKING:
    from prometheus_client import Metric

    from mycel.config.value_types import BindAddress
    from mycel.swarm.interface import SwarmFigures


@asynccontextmanager
async def exported(
    program: Program, key: str, address: BindAddress | None, figures: Callable[[], SwarmFigures]
) -> AsyncIterator[str]:
    """Yields the URL; empty if there is no address. `key` is the setting that names it."""
    if address is None:
        yield ""
        return
    from mycel import __version__
    from mycel.telemetry.exporter import CannotExport, Exporter
    from mycel.telemetry.exposition import Exposition, common_metrics
    from mycel.telemetry.swarm_metrics import swarm_metrics

    collect_swarm = swarm_metrics(figures)

    def collect() -> Iterator[Metric]:
        yield from common_metrics(__version__, program.log.lines_dropped)
        yield from collect_swarm()

    exporter = Exporter(Exposition(collect).text, _refusing(program))
    try:
        await exporter.start(address.host, address.port)
    except CannotExport as error:
        raise RoleFault(f"{key}: {error}") from error
    try:
        yield exporter.address
    finally:
        await exporter.stop()


def _refusing(program: Program) -> Callable[[bytes | None], str]:
    from mycel.access import tokens
    from mycel.access.bearer import NotAuthenticated, verify
    from mycel.core.rights import ADMIN, READ

    def refuse(authorization: bytes | None) -> str:
        try:
            rights, _ = verify(
                authorization,
                lambda token: tokens.inspect(program.owner_public, token),
                program.configuration.swarm.name,
            )
        except NotAuthenticated as error:
            return str(error)
        if rights.is_over(time.time()):
            return "this token has expired: ask for a new one"
        if rights.is_revoked(program.revoking.revoked):
            return "this token was revoked"
        allowed = {READ, ADMIN} & set(rights.actions)
        return "" if allowed else f"this token does not allow to {READ}"

    return refuse
