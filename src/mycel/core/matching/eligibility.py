"""Which workers could ever run a shape: one mask per requirement, and what they leave over.

The requirements are looked at in the order of `obstacles`, so that the first one that a worker
fails is the same here, for all workers at once, and there, for one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from mycel.core.model.model_names import shown
from mycel.core.model.resources import Capabilities, Gpu, Requirements, millis, size
from mycel.core.model.work import Shape

from .indexes import Amounts, Postings
from .obstacles import gpus_in_words
from .rank_terms import waste_floor
from .slot_counts import gpus_needed, gpus_suiting, micros
from .version_ranges import version_satisfies

SHAPES_KEPT_MAX: Final = 256
KEPT_BYTES: Final = 8 << 20
"""So many answers are kept, or more as long as they take no more room than this."""
_VALUES_SHOWN: Final = 3
_NOTHING: Final = Capabilities()


Parts = tuple[tuple[int, int], ...]
"""Numbers, each with the mask of those it belongs to."""


class Hurdle(NamedTuple):
    """One requirement: who meets it, and what to say of those who do not."""

    passing: int
    reason: Callable[[int], str]
    """Of a mask of workers that fail it: what is asked, and what they have."""


class Eligibility:
    def __init__(self) -> None:
        self.known = 0
        """Everybody."""
        self._memory = Amounts()
        self._gpu_memory = Amounts()
        """Of the largest GPU; 0 without one."""
        self._cores = Amounts()
        self._disk = Amounts()
        self._gpus: Postings[tuple[Gpu, ...]] = Postings()
        self._custom: dict[str, Amounts] = {}
        self._arch: Postings[str] = Postings()
        self._os: Postings[str] = Postings()
        self._labels: Postings[tuple[str, str]] = Postings()
        self._software: Postings[tuple[str, str]] = Postings()
        self._drivers: Postings[str] = Postings()
        self._models: Postings[str] = Postings()
        self._price: Postings[float] = Postings()
        self._sandbox: Postings[bool] = Postings()
        self._network: Postings[bool] = Postings()
        self._kept: dict[Shape, int] = {}
        self._wastes: dict[tuple[int, int | None], Parts] = {}

    # What workers have

    def put(self, slot: int, before: Capabilities | None, after: Capabilities | None) -> None:
        """What a worker can do has changed; `None` is a worker that is not there."""
        if before == after:
            return
        self._kept.clear()
        self._wastes.clear()
        if (before is None) != (after is None):
            self.known ^= 1 << slot
        old, new = before or _NOTHING, after or _NOTHING
        was, is_there = before is not None, after is not None
        self._gpus.put(slot, [old.gpus] * was, [new.gpus] * is_there)
        self._arch.put(slot, [old.arch] * was, [new.arch] * is_there)
        self._os.put(slot, [old.os] * was, [new.os] * is_there)
        self._price.put(slot, [old.price.floor] * was, [new.price.floor] * is_there)
        self._sandbox.put(slot, [bool(old.sandbox)] * was, [bool(new.sandbox)] * is_there)
        self._network.put(slot, [old.network] * was, [new.network] * is_there)
        self._labels.put(slot, dict(old.labels).items(), dict(new.labels).items())
        self._software.put(slot, dict(old.software).items(), dict(new.software).items())
        self._drivers.put(slot, dict.fromkeys(old.drivers), dict.fromkeys(new.drivers))
        self._models.put(slot, dict.fromkeys(old.models), dict.fromkeys(new.models))
        self._put_amounts(slot, old, after)

    def _put_amounts(self, slot: int, old: Capabilities, after: Capabilities | None) -> None:
        new = after or _NOTHING
        there = after is not None
        largest = max((gpu.memory for gpu in new.gpus), default=0)
        self._memory.put(slot, new.memory if there else None)
        self._gpu_memory.put(slot, largest if there else None)
        self._cores.put(slot, millis(new.cpu_cores) if there else None)
        self._disk.put(slot, new.disk if there else None)
        custom = dict(new.custom)
        for name in {name for name, _ in old.custom} - custom.keys():
            self._custom[name].put(slot, None)
            if not self._custom[name]:
                del self._custom[name]
        for name, amount in custom.items():
            self._custom.setdefault(name, Amounts()).put(slot, micros(amount))

    # What a shape asks

    def eligible(self, shape: Shape) -> int:
        """Who meets the whole requirement, whatever the state of their health and load."""
        found = self._kept.get(shape)
        if found is None:
            found = self.known
            for passing, _ in self.hurdles(shape):
                found &= passing
                if not found:
                    break
            if len(self._kept) >= max(
                SHAPES_KEPT_MAX, 8 * KEPT_BYTES // (self.known + 2).bit_length()
            ):
                del self._kept[next(iter(self._kept))]
            self._kept[shape] = found
        return found

    def hurdles(self, shape: Shape) -> Iterator[Hurdle]:
        """What the shape asks, one after the other; what it does not ask is left out."""
        yield from self._amounts_asked(shape)
        yield from self._places_asked(shape)
        yield from self._programs_asked(shape)
        most = shape.max_cost
        if most is not None:
            yield Hurdle(
                self._price.where(most, lambda price: price <= most),
                lambda failing: f"may cost {most:g}, they ask {self._seen(self._price, failing)}",
            )
        if shape.sandbox:
            yield Hurdle(self._sandbox.mask(True), lambda _: "needs a sandbox, they have none")
        if shape.network:
            yield Hurdle(
                self._network.mask(True), lambda _: "needs the network, they give tasks none"
            )

    def _amounts_asked(self, shape: Shape) -> Iterator[Hurdle]:
        need = shape.requirements
        memory, cores, disk, wanted = need.min_memory, need.cpu_cores, need.disk, need.gpus
        if memory:
            yield Hurdle(
                self._memory.at_least(memory),
                lambda failing: (
                    f"needs {size(memory)} of memory, "
                    f"the largest has {size(self._memory.largest(failing))}"
                ),
            )
        if wanted is not None:
            yield Hurdle(
                self._gpus.where(
                    wanted, lambda gpus: len(gpus_suiting(wanted, gpus)) >= gpus_needed(wanted)
                ),
                lambda failing: (
                    f"needs {gpus_in_words(wanted)}, they have {self._gpus_seen(failing)}"
                ),
            )
        if millis(cores):
            yield Hurdle(
                self._cores.at_least(millis(cores)),
                lambda failing: (
                    f"needs {cores:g} cores, the largest has "
                    f"{self._cores.largest(failing) / 1000:g}"
                ),
            )
        if disk:
            yield Hurdle(
                self._disk.at_least(disk),
                lambda failing: (
                    f"needs {size(disk)} of disk, "
                    f"the largest has {size(self._disk.largest(failing))}"
                ),
            )
        for name, amount in need.custom:
            yield self._custom_asked(name, amount)

    def _custom_asked(self, name: str, amount: float) -> Hurdle:
        amounts = self._custom.get(name)
        if amounts is None or amount <= 0.0:
            passing = 0 if amount > 0.0 else self.known
            return Hurdle(passing, lambda _: f"needs {amount:g} {name}, they have none")
        return Hurdle(
            amounts.at_least(micros(amount)),
            lambda failing: (
                f"needs {amount:g} {name}, the largest has {amounts.largest(failing) / 1e6:g}"
            ),
        )

    def _places_asked(self, shape: Shape) -> Iterator[Hurdle]:
        need = shape.requirements
        for what, wanted, postings in (("arch", need.arch, self._arch), ("os", need.os, self._os)):
            if wanted:
                yield Hurdle(
                    postings.mask(wanted),
                    lambda failing, what=what, wanted=wanted, postings=postings: (  # type: ignore[misc]
                        f"needs {what} {wanted}, they are {self._seen(postings, failing)}"
                    ),
                )
        for pair in need.labels:
            yield Hurdle(
                self._labels.mask(pair),
                lambda failing, pair=pair: (  # type: ignore[misc]
                    f"needs the label {pair[0]}={pair[1]}, "
                    f"{self._named_seen(self._labels, pair[0], failing)}"
                ),
            )

    def serves(self, model: str) -> bool:
        return bool(self._models.mask(model))

    @property
    def models(self) -> list[str]:
        return self._models.values()

    def _programs_asked(self, shape: Shape) -> Iterator[Hurdle]:
        for name, wanted in shape.requirements.software:
            yield self._software_asked(name, wanted)
        if shape.driver == "model":
            yield Hurdle(
                self._models.mask(shape.model),
                lambda failing: (
                    f"needs the model {shown(shape.model)}, they serve "
                    f"{shown(self._seen(self._models, failing))}"
                ),
            )
        yield Hurdle(
            self._drivers.mask(shape.driver),
            lambda failing: (
                f"needs the driver {shape.driver}, they have {self._seen(self._drivers, failing)}"
            ),
        )

    def _software_asked(self, name: str, wanted: str) -> Hurdle:
        def accepts(program: tuple[str, str]) -> bool:
            return program[0] == name and version_satisfies(program[1], wanted)

        return Hurdle(
            self._software.where((name, wanted), accepts),
            lambda failing: (
                f"needs {name} {wanted}, {self._named_seen(self._software, name, failing)}"
            ),
        )

    # What a shape would waste

    def by_waste(self, need: Requirements) -> Parts:
        """Everybody, by what of them such a task would leave unused: GPUs that it does not
        want, more GPU memory than it wants, more memory than it wants. The least first."""
        gpu_floor = None if need.gpus is None else waste_floor(need.gpus.memory)
        key = (waste_floor(need.min_memory), gpu_floor)
        parts = self._wastes.get(key)
        if parts is None:
            memory = self._in_steps(self._memory, key[0])
            if gpu_floor is None:
                with_gpus = self._gpu_memory.at_least(1)
                gpus = (self.known ^ with_gpus, 0, with_gpus)
            else:
                gpus = self._in_steps(self._gpu_memory, gpu_floor)
            masks: dict[int, int] = {}
            for gpu_waste, gpu_part in enumerate(gpus):
                for memory_waste, memory_part in enumerate(memory):
                    waste = 2 * gpu_waste + memory_waste
                    masks[waste] = masks.get(waste, 0) | (gpu_part & memory_part)
            parts = tuple((waste, masks[waste]) for waste in sorted(masks) if masks[waste])
            self._wastes[key] = parts
        return parts

    def _in_steps(self, amounts: Amounts, floor: int) -> tuple[int, int, int]:
        """Who has less than twice, less than four times, and at least four times as much."""
        twice = amounts.at_least(1 << floor)
        fourfold = amounts.at_least(1 << (floor + 1))
        return self.known ^ twice, twice ^ fourfold, fourfold

    # What those have that fail

    def _seen(self, postings: Postings[str] | Postings[float], failing: int) -> str:
        return _in_words((str(value) or "unknown", n) for value, n in postings.counts(failing))

    def _gpus_seen(self, failing: int) -> str:
        return _in_words(
            (" and ".join(_kinds(gpus)) or "none", count)
            for gpus, count in self._gpus.counts(failing)
        )

    @staticmethod
    def _named_seen(postings: Postings[tuple[str, str]], name: str, failing: int) -> str:
        seen = [(value[1], n) for value, n in postings.counts(failing) if value[0] == name]
        if not seen:
            return "they have none"
        rest = failing.bit_count() - sum(count for _, count in seen)
        return f"they have {_in_words([*seen, *([('none', rest)] if rest else [])])}"


def _kinds(gpus: tuple[Gpu, ...]) -> list[str]:
    counts: dict[Gpu, int] = {}
    for gpu in gpus:
        counts[gpu] = counts.get(gpu, 0) + 1
    return [f"{count} {gpu.model} with {size(gpu.memory)}" for gpu, count in counts.items()]


def _in_words(counted: Iterable[tuple[str, int]]) -> str:
    """The most frequent values, with how many have each."""
    values = list(counted)
    if len(values) == 1:
        return values[0][0]
    shown = ", ".join(f"{value} ({count})" for value, count in values[:_VALUES_SHOWN])
    more = len(values) - _VALUES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown or "none"
