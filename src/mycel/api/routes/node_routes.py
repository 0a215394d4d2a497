"""The scheduler's process itself: its health, its metrics, and what its owner has revoked."""

from __future__ import annotations

from typing import Final

import msgspec

from mycel.api.answers.answers import RevocationsAnswer, iso_or_none
from mycel.api.http.exchange import Request, answer
from mycel.api.http.problems import Problem
from mycel.api.submission.bodies import decode_revocations

_METRICS_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"
_OK: Final = b'{"status":"ok"}'


class TokenAnswer(msgspec.Struct, frozen=True):
    """What the caller's token allows."""

    swarm: str
    user: str
    actions: list[str]
    priority_max: int | None
    caps: dict[str, float]
    expires_at: str | None


async def show_token(request: Request) -> None:
    request.query()
    rights = request.caller.rights
    answered = TokenAnswer(
        rights.swarm,
        rights.user,
        sorted(rights.actions),
        rights.priority_max,
        dict(rights.caps),
        iso_or_none(rights.expires_at),
    )
    await request.answer(answered)


async def show_metrics(request: Request) -> None:
    await answer(request.send, 200, request.backend.prometheus(), media_type=_METRICS_TYPE)


async def show_health(request: Request) -> None:
    await answer(request.send, 200, _OK)


async def show_readiness(request: Request) -> None:
    if not request.backend.ready:
        raise Problem(
            503,
            "the scheduler is stopping, or its disk takes nothing",
            headers=[(b"retry-after", b"1")],
        )
    await answer(request.send, 200, _OK)


async def revoke(request: Request) -> None:
    request.query()
    body = decode_revocations(await request.body())
    await request.answer(RevocationsAnswer(request.backend.revoke(body.records)))
