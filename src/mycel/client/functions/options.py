"""`@mycel.task(cores=2)`: a function with what it needs where it runs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, overload

import msgspec

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of the REST API that say how a task runs, by shorter names."""

    cores: float | None = None
    memory: int | str | None = None
    """Bytes, or a number with its unit, such as "4GB"."""
    gpus: float | Mapping[str, Any] | None = None
    disk: int | str | None = None
    labels: Mapping[str, str] | None = None
    """That the worker must have."""
    timeout: float | None = None
    max_attempts: int | None = None
    retry_on_error: bool = False
    env: Mapping[str, str] | None = None
    environment: str | Sequence[str] | Path | None = None
    """Packages, as a requirements file or its lines."""
    network: bool = False
    priority: int = 0
    name: str = ""
    key: str = ""
    """Calls with the same key run once, whoever submits them again."""

    def body(self) -> dict[str, Any]:
        """As a task's body has it."""
        gpus = {"count": self.gpus} if isinstance(self.gpus, int | float) else self.gpus
        requirements = {
            "cpu_cores": self.cores,
            "min_memory": self.memory,
            "gpus": gpus,
            "disk": self.disk,
            "labels": self.labels,
        }
        retry = {"max_attempts": self.max_attempts, "on_error": self.retry_on_error}
        fields = {
            "requirements": {name: one for name, one in requirements.items() if one is not None},
            "timeout": self.timeout,
            "retry": retry if self.max_attempts is not None or self.retry_on_error else None,
            "env": self.env,
            "environment": self.environment,
            "network": self.network,
            "priority": self.priority,
            "name": self.name,
        }
        return {name: one for name, one in fields.items() if one}


DEFAULT = Options()


class TaskFunction(Generic[Parameters, Returned]):
    """Called, it is the function that it was made of; submitted, it runs as its options say."""

    def __init__(self, function: Callable[Parameters, Returned], options: Options) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.options = options

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
        return self.function(*args, **kwargs)

    def with_options(self, **changes: Any) -> TaskFunction[Parameters, Returned]:
        changed = msgspec.structs.replace(self.options, **changes)
        return TaskFunction(self.function, changed)

    def __reduce__(self) -> tuple[Any, ...]:
        return TaskFunction, (self.function, self.options)


class Decorator(Protocol):
    def __call__(
        self, function: Callable[Parameters, Returned], /
    ) -> TaskFunction[Parameters, Returned]: ...


@overload
def task(
    function: Callable[Parameters, Returned], /, **options: Any
) -> TaskFunction[Parameters, Returned]: ...
@overload
def task(**options: Any) -> Decorator: ...
def task(function: Any = None, /, **options: Any) -> Any:
    """`@mycel.task`, or `@mycel.task(cores=2, memory="4GB", …)`; see `Options`."""
    given = Options(**options)
    if function is not None:
        return TaskFunction(function, given)
    return lambda decorated: TaskFunction(decorated, given)


def parted(function: Any) -> tuple[Any, Options]:
    """A function and its options."""
    if isinstance(function, TaskFunction):
        return function.function, function.options
    return function, DEFAULT
