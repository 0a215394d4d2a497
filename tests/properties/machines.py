"""Machines and needs, few enough of each that they often meet."""

from __future__ import annotations

from hypothesis import strategies as st

from mycel.core.model.resources import Capabilities, Gpu, GpuRequirement, Requirements
from mycel.core.model.work import Shape

_BYTES = st.one_of(
    st.integers(0, 1 << 46),
    st.integers(28, 46).flatmap(lambda bits: st.sampled_from([(1 << bits) - 1, 1 << bits])),
)
_DRIVERS = st.sampled_from(["process", "python", "model"])
_MODELS = st.sampled_from(["llama", "mistral"])
_GPUS = st.sampled_from(["T4", "A100"])
_PAIRS = st.lists(
    st.tuples(st.sampled_from(["zone", "tier"]), st.sampled_from(["a", "b"])),
    max_size=2,
    unique_by=lambda pair: pair[0],
).map(tuple)
_CUSTOM = st.lists(st.tuples(st.just("licence"), st.floats(0, 4, allow_nan=False)), max_size=1).map(
    tuple
)

capabilities = st.builds(
    Capabilities,
    cpu_cores=st.sampled_from([1.0, 8.0, 64.0]),
    memory=_BYTES,
    disk=_BYTES,
    gpus=st.lists(st.builds(Gpu, model=_GPUS, memory=_BYTES), max_size=5).map(tuple),
    models=st.lists(_MODELS, unique=True).map(tuple),
    drivers=st.lists(_DRIVERS, unique=True).map(tuple),
    labels=_PAIRS,
    arch=st.sampled_from(["", "x86_64", "arm64"]),
    os=st.sampled_from(["", "linux", "darwin"]),
    software=st.lists(
        st.tuples(st.just("cuda"), st.sampled_from(["11.8", "12.4"])), max_size=1
    ).map(tuple),
    custom=_CUSTOM,
)

requirements = st.builds(
    Requirements,
    cpu_cores=st.sampled_from([0.0, 1.0, 16.0]),
    min_memory=st.one_of(st.just(0), _BYTES),
    disk=st.one_of(st.just(0), _BYTES),
    gpus=st.one_of(
        st.none(),
        st.builds(
            GpuRequirement,
            count=st.sampled_from([0.25, 1.0, 2.0, 3.0]),
            model=st.sampled_from(["", "T4", "A100"]),
            memory=st.one_of(st.just(0), _BYTES),
        ),
    ),
    custom=_CUSTOM,
    labels=_PAIRS,
    arch=st.sampled_from(["", "x86_64"]),
    os=st.sampled_from(["", "linux"]),
    software=st.lists(st.tuples(st.just("cuda"), st.just(">=12")), max_size=1).map(tuple),
)

shapes = st.builds(Shape, driver=_DRIVERS, requirements=requirements, model=_MODELS)
