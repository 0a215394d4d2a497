"""M/M/k as one writes it in SimPy: a process for each customer, a resource for the servers."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple

import simpy


class SimpyRun(NamedTuple):
    wait_mean: float
    events: int


def run(arrivals: list[float], services: list[float], servers: int) -> SimpyRun:
    environment = simpy.Environment()
    resource = simpy.Resource(environment, capacity=servers)
    waited = 0.0

    def customer(service: float) -> Generator[Any, Any, None]:
        nonlocal waited
        arrived = environment.now
        with resource.request() as request:
            yield request
            waited += environment.now - arrived
            yield environment.timeout(service)

    def source() -> Generator[Any, Any, None]:
        for arrival, service in zip(arrivals, services, strict=True):
            yield environment.timeout(arrival - environment.now)
            environment.process(customer(service))

    environment.process(source())
    environment.run()
    # The environment numbers what it schedules, so that ties keep their order.
    return SimpyRun(waited / len(arrivals), next(environment._eid))
