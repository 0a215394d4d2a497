"""`mycel.AsyncClient`: the same client under an event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import mycel
from mycel.client import NotFound

from .swarm import Swarm, eventually


@pytest.fixture
async def client(swarm: Swarm) -> AsyncIterator[mycel.AsyncClient]:
    async with mycel.AsyncClient(swarm.client.api, swarm.token) as client:
        yield client


async def test_calls_and_futures(client: mycel.AsyncClient) -> None:
    assert await client.run(lambda a, b: a + b, 1, 2) == 3
    assert await client.run("operator:mul", 6, 7) == 42
    futures = [client.submit(lambda n: n * 2, n) for n in range(50)]
    assert await asyncio.gather(*futures) == [2 * n for n in range(50)]
    with pytest.raises(ZeroDivisionError):
        await client.submit(lambda: 1 / 0)


async def test_values_and_lists(client: mycel.AsyncClient) -> None:
    assert [value async for value in client.map(lambda n: n + 1, range(100))] == list(range(1, 101))
    job = await client.submit_job({"command": ["true"]}, count=3)
    await client.wait_job(job.id)
    assert [one.state async for one in client.results(job.id)] == ["succeeded"] * 3
    assert job.id in [one.id async for one in client.jobs()]
    with pytest.raises(NotFound):
        await client.job("0" * 26)
    with pytest.raises(AttributeError):
        client.no_such_thing  # noqa: B018


async def test_a_call_that_is_cancelled(
    swarm: Swarm, client: mycel.AsyncClient, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"

    def run_on(path: str) -> None:
        Path(path).touch()
        time.sleep(1000)

    running = asyncio.create_task(client.run(run_on, str(begun)))
    await asyncio.to_thread(eventually, begun.exists, "the call has begun")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await asyncio.to_thread(eventually, lambda: not _is_running(swarm), "it was cancelled")


def _is_running(swarm: Swarm) -> bool:
    return any("run_on" in (one.python or "") for one in swarm.client.tasks(state="running"))
