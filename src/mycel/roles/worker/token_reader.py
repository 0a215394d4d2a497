"""How a worker looks into the tokens that schedulers show it."""

from __future__ import annotations

from typing import Final

from mycel.access.tokens import inspect
from mycel.core.identifiers import PeerId
from mycel.core.rights import Inspect, Rights
from mycel.swarm.errors import InvalidToken

REMEMBERED_MAX: Final = 1024


def remembering(owner_public: bytes, swarm: str) -> Inspect:
    """Signatures are checked once for each token and scheduler: the same one comes with many
    shapes."""
    known: dict[tuple[bytes, PeerId], Rights | str] = {}

    def look(token: bytes, peer: PeerId) -> Rights | str:
        found = known.get((token, peer))
        if found is None:
            found = _look(token, peer)
            if len(known) >= REMEMBERED_MAX:
                known.clear()
            known[token, peer] = found
        return found

    def _look(token: bytes, peer: PeerId) -> Rights | str:
        try:
            rights = inspect(owner_public, token, peer)
        except InvalidToken as error:
            return str(error)
        return rights if rights.swarm == swarm else "its token is for another swarm"

    return look
