"""Ray on this machine, with two cores: a script for the Python of Ray's environment."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

measures: Any = importlib.import_module("measures")  # beside this script
ray: Any = importlib.import_module("ray")


class RayPool:
    def __init__(self) -> None:
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            configure_logging=False,
            log_to_driver=False,
            _node_ip_address="127.0.0.1",
        )
        self._call = ray.remote(num_cpus=1)(lambda value: value)

    def call(self, argument: Any) -> Any:
        return ray.get(self._call.remote(argument))

    def calls(self, arguments: Sequence[Any]) -> Sequence[Any]:
        values: list[Any] = ray.get([self._call.remote(argument) for argument in arguments])
        return values


if __name__ == "__main__":
    measures.serve(RayPool())
    ray.shutdown()
