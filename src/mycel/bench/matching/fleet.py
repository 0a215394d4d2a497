"""A seeded fleet of workers and a seeded mix of shapes, for the matching benchmark.

Every worker is different: odd amounts of memory and disk, a label of its own. One shape in ten
fits nobody, one in ten a single worker; most shapes occur once, so that remembering answers
does not win.
"""

from __future__ import annotations

from random import Random
from typing import Final

from mycel.core.model.prices import Tariff
from mycel.core.model.resources import Capabilities, Free, Gpu, GpuRequirement, Requirements
from mycel.core.model.work import Shape, model_slot

GB: Final = 10**9
_GPUS: Final = (
    (),
    (),
    (),
    (Gpu("T4", 16 * GB),),
    (Gpu("A10", 24 * GB),) * 2,
    (Gpu("A100", 40 * GB),) * 4,
    (Gpu("A100", 80 * GB),) * 8,
    (Gpu("H100", 80 * GB),) * 8,
    (Gpu("T4", 16 * GB), Gpu("A10", 24 * GB)),
)
_CUDA: Final = ("11.8", "12.1", "12.2", "12.4", "13.0")
_MODELS: Final = ("llama-2-7b", "gemma-3-4b", "stable-diffusion-xl", "whisper-large")
_ZONES: Final = tuple("abcdefgh")
_CORES: Final = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 96.0)


def capabilities(random: Random, number: int) -> Capabilities:
    gpus = random.choice(_GPUS)
    models = tuple(random.sample(_MODELS, random.randrange(3))) if gpus else ()
    cores = random.choice(_CORES)
    return Capabilities(
        cpu_cores=cores,
        memory=random.choice((4, 8, 16, 32, 64, 128)) * GB - random.randrange(0, GB, 4096),
        disk=random.randrange(50 * GB, 2000 * GB),
        gpus=gpus,
        models=models,
        drivers=("process", "python", "model") if models else ("process", "python"),
        labels=(("host", f"h{number}"), ("zone", random.choice(_ZONES))),
        arch="arm64" if random.random() < 0.2 else "x86_64",
        os="linux",
        software=(
            ("python", random.choice(("3.11.7", "3.12.3", "3.13.0"))),
            *((("cuda", random.choice(_CUDA)),) if gpus else ()),
        ),
        custom=(
            *((("licence", float(random.randrange(1, 5))),) if random.random() < 0.1 else ()),
            *((model_slot(model), float(random.randrange(1, 9))) for model in models),
        ),
        price=Tariff(random.choice((0.0, 0.0, 0.02, 0.5))),
    )


def free(random: Random, has: Capabilities) -> Free:
    """Some of it, as a worker that is in use reports it."""
    busy = random.randrange(int(has.cpu_cores) + 1)
    share = 1.0 - busy / has.cpu_cores
    return Free(
        cpu_millis=round(has.cpu_cores * 1000) - busy * 1000,
        memory=int(has.memory * (0.2 + 0.8 * share * random.random())),
        disk=has.disk,
        gpu_millis=tuple(random.choice((1000, 1000, 500, 0)) for _ in has.gpus),
        custom=tuple((name, float(random.randrange(int(most) + 1))) for name, most in has.custom),
    )


def shape(random: Random, workers: int) -> Shape:
    """One of the mix."""
    chance = random.random()
    if chance < 0.1:
        return _infeasible(random)
    if chance < 0.2:
        host = ("host", f"h{random.randrange(workers)}")
        need = Requirements(cpu_cores=1.0, min_memory=random.randrange(GB), labels=(host,))
        return Shape("process", need)
    kind = random.random()
    if kind < 0.1:
        return Shape("model", Requirements(min_memory=_memory(random)), random.choice(_MODELS))
    return Shape(
        random.choice(("process", "python")),
        Requirements(
            cpu_cores=random.choice((0.5, 1.0, 1.0, 2.0, 4.0, 8.0)),
            min_memory=_memory(random),
            disk=random.randrange(100 * GB) if random.random() < 0.2 else 0,
            gpus=_gpus(random) if kind < 0.5 else None,
            custom=(("licence", 1.0),) if random.random() < 0.05 else (),
            labels=(("zone", random.choice(_ZONES)),) if random.random() < 0.3 else (),
            arch="x86_64" if random.random() < 0.5 else "",
            os="linux" if random.random() < 0.5 else "",
            software=(("python", ">=3.12"),) if random.random() < 0.2 else (),
        ),
        max_cost=0.1 if random.random() < 0.1 else None,
    )


def _memory(random: Random) -> int:
    """Half of them round, half as measured."""
    if random.random() < 0.5:
        return random.choice((0, 1, 2, 4, 8, 16, 32)) * GB
    return random.randrange(40 * GB)


def _gpus(random: Random) -> GpuRequirement:
    return GpuRequirement(
        count=random.choice((0.25, 0.5, 1.0, 1.0, 2.0, 4.0)),
        model=random.choice(("", "", "A100", "T4")),
        memory=random.choice((0, 10, 16)) * GB,
    )


def _infeasible(random: Random) -> Shape:
    return random.choice(
        (
            Shape("process", Requirements(cpu_cores=random.uniform(97.0, 500.0))),
            Shape("process", Requirements(min_memory=random.randrange(129 * GB, 900 * GB))),
            Shape("python", Requirements(labels=(("zone", f"z{random.randrange(10**6)}"),))),
            Shape("model", Requirements(), f"unknown-{random.randrange(10**6)}"),
            Shape("process", Requirements(arch="arm64", software=(("cuda", ">=14"),))),
        )
    )
