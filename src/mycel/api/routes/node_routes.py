"""The scheduler's process itself: its health, its metrics, and what its owner has revoked."""

from __future__ import annotations

from typing import Final

from mycel.api.answers.answers import RevocationsAnswer
from mycel.api.http.exchange import Request, answer
from mycel.api.http.problems import Problem
from mycel.api.submission.bodies import decode_revocations

_METRICS_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"
_OK: Final = b'{"status":"ok"}'


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
