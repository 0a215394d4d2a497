"""What machines have and what tasks need.

`Capabilities` is what a worker says of itself, `Requirements` what a task asks for, and a
`Ledger` the worker's own book of what is taken. Cores and GPUs are booked in thousandths,
as integers, so that no sum of fractions drifts.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from mycel.core.ranges import (
    FEW,
    MANY,
    Amount,
    Balance,
    Count,
    Finite,
    LongText,
    Name,
    Names,
    Reason,
    Share,
    Size,
    Word,
)

from .gpu_names import gpu_suits
from .prices import Tariff

Pairs = Annotated[tuple[tuple[Name, LongText], ...], MANY]
Amounts = Annotated[tuple[tuple[Name, Finite], ...], MANY]
"""Sums and differences too, which may be a trace below nothing."""

SLOTS_MAX: Final = 4096
"""No shape has more at one worker, however small the task."""


class GpuRequirement(msgspec.Struct, frozen=True, omit_defaults=True):
    count: Amount = 1.0
    """Whole GPUs, or a fraction of one."""
    model: Name = ""
    """As its user calls it; `gpu_names` says what that means."""
    memory: Size = 0
    """Bytes that each of them must have."""


class Requirements(msgspec.Struct, frozen=True, omit_defaults=True):
    """Resources are reserved; constraints only filter."""

    cpu_cores: Amount = 0.0
    min_memory: Size = 0
    disk: Size = 0
    gpus: GpuRequirement | None = None
    custom: Annotated[tuple[tuple[Name, Amount], ...], MANY] = ()
    labels: Pairs = ()
    arch: Name = ""
    os: Name = ""
    software: Pairs = ()
    """Name and version range, for example ("cuda", ">=12.2,<13")."""


class Gpu(msgspec.Struct, frozen=True, omit_defaults=True):
    model: Name
    """As its driver calls it, or its owner."""
    memory: Size
    vendor: Name = ""


class ServedModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model that a worker serves now, and what it takes of the worker while it does."""

    name: Name
    kind: Word = "chat"
    slots: Count = 1
    """Requests at once; 0 while it is loaded again."""
    memory: Size = 0
    gpu_memory: Size = 0
    trouble: Reason = ""
    """Why it is not up; empty while it is."""
    promised: bool = True
    """Whether requests for it may wait here; not after it has failed again and again."""


class Capabilities(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that a worker brings, whether taken or not."""

    cpu_cores: Amount = 0.0
    memory: Size = 0
    disk: Size = 0
    gpus: Annotated[tuple[Gpu, ...], FEW] = ()
    models: Names = ()
    drivers: Names = ()
    labels: Pairs = ()
    arch: Name = ""
    os: Name = ""
    software: Pairs = ()
    custom: Amounts = ()
    price: Tariff = Tariff()
    """What it asks, in whatever unit the swarm has agreed on."""
    sandbox: Name = ""
    """What its processes and functions run in, such as `bubblewrap`; empty is nothing."""
    walls: Names = ()
    """All that holds them, for people."""
    advice: Reason = ""
    """What its owner can do for better walls; empty if there is nothing better."""
    network: bool = True
    """Whether tasks that ask for the network get it."""
    limits: Names = ()
    """Which limits it can enforce: `memory`, `cpu`, `processes`, `file_size`, `wall_time`."""
    served: Annotated[tuple[ServedModel, ...], FEW] = ()
    """More of each of `models`."""


class Free(msgspec.Struct, frozen=True, omit_defaults=True):
    """What of a worker's resources is not booked."""

    cpu_millis: Balance = 0
    memory: Balance = 0
    disk: Balance = 0
    gpu_millis: Annotated[tuple[Balance, ...], FEW] = ()
    custom: Amounts = ()


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """What of a machine is really in use, by whomever, in sixteenths: small changes are none."""

    cpu: Share = 0
    memory: Share = 0
    gpus: Annotated[tuple[Share, ...], FEW] = ()
    """In the order of its GPUs; -1 for one that does not say."""


USAGE_STEPS: Final = 16


class Booking(msgspec.Struct, frozen=True):
    """A slice that was taken, so that exactly it can be given back."""

    cpu_millis: int
    memory: int
    disk: int
    gpu_millis: tuple[tuple[int, int], ...]
    """(which GPU, how many thousandths of it)"""
    custom: Amounts


def millis(amount: float) -> int:
    return round(amount * 1000)


def size(amount: int) -> str:
    """Bytes, for people."""
    for unit, factor in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if amount >= factor:
            return f"{amount / factor:.3g} {unit}"
    return f"{amount} bytes"


class Ledger:
    """Owns a worker's resources: what is booked never exceeds what there is."""

    def __init__(self, capabilities: Capabilities) -> None:
        self._gpus = capabilities.gpus
        self._total = Free(
            cpu_millis=millis(capabilities.cpu_cores),
            memory=capabilities.memory,
            disk=capabilities.disk,
            gpu_millis=tuple(1000 for _ in capabilities.gpus),
            custom=capabilities.custom,
        )
        self._cpu_millis = self._total.cpu_millis
        self._memory = self._total.memory
        self._disk = self._total.disk
        self._gpu_millis = list(self._total.gpu_millis)
        self._custom = dict(self._total.custom)
        """Below zero where more is booked of a resource than there is now."""
        self._named = set(self._custom)
        self._reduced: set[str] = set()

    @property
    def free(self) -> Free:
        return Free(
            cpu_millis=self._cpu_millis,
            memory=self._memory,
            disk=self._disk,
            gpu_millis=tuple(self._gpu_millis),
            custom=tuple((name, max(0.0, self._custom[name])) for name in sorted(self._named)),
        )

    @property
    def total(self) -> Free:
        return self._total

    def book(self, requirements: Requirements) -> Booking | None:
        """Takes one slice, or nothing if it does not fit now."""
        gpus = self._choose_gpus(requirements.gpus)
        cpu_millis = millis(requirements.cpu_cores)
        if (
            gpus is None
            or cpu_millis > self._cpu_millis
            or requirements.min_memory > self._memory
            or requirements.disk > self._disk
            or any(amount > self._custom.get(name, 0.0) for name, amount in requirements.custom)
        ):
            return None
        booking = Booking(
            cpu_millis=cpu_millis,
            memory=requirements.min_memory,
            disk=requirements.disk,
            gpu_millis=gpus,
            custom=requirements.custom,
        )
        self._add(booking, -1)
        return booking

    def give_back(self, booking: Booking) -> None:
        self._add(booking, +1)

    def rename(self, custom: Amounts) -> None:
        """From now on there are these named resources. What is booked of one that has become
        less stays booked until it is given back."""
        before, after = dict(self._total.custom), dict(custom)
        for name in before.keys() | after.keys():
            change = after.get(name, 0.0) - before.get(name, 0.0)
            self._custom[name] = self._custom.get(name, 0.0) + change
            if change < 0:
                self._reduced.add(name)
        self._named = set(after)
        self._total = msgspec.structs.replace(self._total, custom=custom)

    def rebase(self, total: Free) -> None:
        """From now on there is so much in all. More may be booked than that: nothing is free
        then until it is given back."""
        before, self._total = self._total, total
        self._cpu_millis += total.cpu_millis - before.cpu_millis
        self._memory += total.memory - before.memory
        self._disk += total.disk - before.disk
        for index in range(len(self._gpu_millis)):
            had = before.gpu_millis[index] if index < len(before.gpu_millis) else 0
            has = total.gpu_millis[index] if index < len(total.gpu_millis) else 0
            self._gpu_millis[index] += has - had
        had_custom, has_custom = dict(before.custom), dict(total.custom)
        for name in had_custom.keys() | has_custom.keys():
            change = has_custom.get(name, 0.0) - had_custom.get(name, 0.0)
            self._custom[name] = self._custom.get(name, 0.0) + change
        self._named = set(has_custom)

    def assert_sound(self) -> None:
        assert 0 <= self._cpu_millis <= self._total.cpu_millis, "cores over-booked"
        assert 0 <= self._memory <= self._total.memory, "memory over-booked"
        assert 0 <= self._disk <= self._total.disk, "disk over-booked"
        assert all(0 <= free <= 1000 for free in self._gpu_millis), "a GPU over-booked"
        for name, amount in self._total.custom:
            assert self._custom[name] <= amount + 1e-6, f"{name} given back twice"
            assert name in self._reduced or self._custom[name] >= -1e-6, f"{name} over-booked"

    def _add(self, booking: Booking, sign: int) -> None:
        self._cpu_millis += sign * booking.cpu_millis
        self._memory += sign * booking.memory
        self._disk += sign * booking.disk
        for index, amount in booking.gpu_millis:
            self._gpu_millis[index] += sign * amount
        for name, quantity in booking.custom:
            self._custom[name] += sign * quantity

    def _choose_gpus(self, wanted: GpuRequirement | None) -> tuple[tuple[int, int], ...] | None:
        """Whole GPUs where whole ones are asked for; a fraction goes to the fullest GPU that
        has room, so that whole ones stay whole."""
        if wanted is None:
            return ()
        fitting = [
            index
            for index, gpu in enumerate(self._gpus)
            if gpu.memory >= wanted.memory
            and gpu_suits(wanted.model, gpu.model, gpu.vendor, gpu.memory)
        ]
        if wanted.count < 1:
            share = millis(wanted.count)
            fitting = [index for index in fitting if self._gpu_millis[index] >= share]
            fitting.sort(key=lambda index: (self._gpu_millis[index], index))
            return ((fitting[0], share),) if fitting else None
        count = round(wanted.count)
        whole = [index for index in fitting if self._gpu_millis[index] == 1000]
        return tuple((index, 1000) for index in whole[:count]) if len(whole) >= count else None
