"""A newcomer becomes a member: a gateway of its invite admits it in the hello.

The gateways are asked one after another, since each that is asked counts: gateways with homes of
their own split how many may join, and two of them would count one newcomer twice. Whoever has been
counted may ask again, which counts nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from mycel.swarm.errors import SwarmError
from mycel.swarm.interface import DialFailure
from mycel.swarm.libp2p import Libp2pSettings, Libp2pSwarm
from mycel.swarm.null_listener import IndifferentListener
from mycel.swarm.quic_alternative import quic_twin

from .arrival import REACH_SECONDS, FailedDial, NotAdmitted, not_admitted, out_of_reach
from .joining import NOBODY_MET

RETRY_SECONDS: Final = 0.25
"""After a round in which some gateways could not be reached."""
_UNANSWERED: Final = FailedDial(DialFailure.NOT_ADMITTED, "it has not answered the invite", "")


class _Newcomer(IndifferentListener):
    def __init__(self) -> None:
        self.member_token: bytes | None = None
        self._ends: dict[str, asyncio.Future[FailedDial | None]] = {}

    def admitted(self, token: bytes) -> None:
        self.member_token = token

    def dial_succeeded(self, address: str, peer: str) -> None:
        self._end(address, None)

    def dial_failed(
        self, address: str, failure: DialFailure, error: str, refusal: str = ""
    ) -> None:
        self._end(address, FailedDial(failure, error, refusal))

    def _end(self, address: str, end: FailedDial | None) -> None:
        future = self._ends.pop(address, None)
        if future is not None:
            future.set_result(end)

    async def ask(self, swarm: Libp2pSwarm, address: str) -> FailedDial | None:
        """None if the gateway let it in; its answer comes before that is told."""
        future: asyncio.Future[FailedDial | None]
        future = self._ends[address] = asyncio.get_running_loop().create_future()
        try:
            swarm.dial(address)
        except SwarmError as error:
            self._end(address, FailedDial(DialFailure.OTHER, str(error), ""))
        return await future


async def be_admitted(
    *,
    secret: bytes,
    owner_public: bytes,
    token: bytes,
    swarm_name: str,
    gateways: Sequence[str],
    settings: Libp2pSettings,
) -> bytes:
    """The token that this node is a member by from now on. Raises `NotAdmitted`."""
    newcomer = _Newcomer()
    swarm = await Libp2pSwarm.start(
        secret=secret,
        owner_public=owner_public,
        token=token,
        swarm_name=swarm_name,
        listener=newcomer,
        protocols=(),
        settings=settings,
        on_admitted=newcomer.admitted,
    )
    try:
        return await _ask_all(swarm, newcomer, gateways)
    finally:
        await swarm.stop()


async def _ask_all(swarm: Libp2pSwarm, newcomer: _Newcomer, gateways: Sequence[str]) -> bytes:
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + REACH_SECONDS
    failed: dict[str, FailedDial] = {}
    open_ones = list(gateways)
    while True:
        for gateway in tuple(open_ones):
            end = await newcomer.ask(swarm, gateway)
            quic = quic_twin(gateway)
            if quic is not None and end is not None and end.failure in NOBODY_MET:
                # An invite names TCP addresses, which may be filtered.
                end = await newcomer.ask(swarm, quic)
            if newcomer.member_token is not None:
                return newcomer.member_token
            failed[gateway] = end or _UNANSWERED
            if failed[gateway].failure is DialFailure.NOT_ADMITTED:
                open_ones.remove(gateway)
        if not open_ones:
            raise not_admitted(failed.values())
        if loop.time() >= ends_at:
            errors = {gateway: dial.error for gateway, dial in failed.items()}
            raise NotAdmitted(out_of_reach(gateways, errors))
        await asyncio.sleep(RETRY_SECONDS)
