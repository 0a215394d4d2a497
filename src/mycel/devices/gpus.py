"""The GPUs of this machine, by vendor. Each vendor's library is optional.

| vendor | how                                                                  |
|--------|----------------------------------------------------------------------|
| nvidia | NVML, by the package nvidia-ml-py (`pynvml`)                         |
| amd    | the package amdsmi, which comes with ROCm                            |
| apple  | `system_profiler`; the GPU shares the machine's memory                |
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Final

import msgspec

PROFILER: Final = ("system_profiler", "-json", "SPDisplaysDataType")
PROFILER_SECONDS: Final = 10.0


class DetectedGpu(msgspec.Struct, frozen=True):
    vendor: str
    model: str
    """As the vendor's library calls it."""
    memory: int
    identifier: str
    """What the vendor's environment variable takes to name it."""


class Sample(msgspec.Struct, frozen=True):
    """What one GPU is doing, from 0 to 1; None if it does not say."""

    utilisation: float | None
    memory_used: int | None


def detect() -> list[DetectedGpu]:
    return [gpu for look in _VENDORS for gpu in look()]


def samples() -> list[Sample]:
    """In the order of `detect`."""
    return [sample for look in _SAMPLERS for sample in look()]


def nvidia(library: Any = None) -> list[DetectedGpu]:
    def read(nvml: Any, handle: Any) -> DetectedGpu:
        return DetectedGpu(
            "nvidia",
            _text(nvml.nvmlDeviceGetName(handle)),
            int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
            _text(nvml.nvmlDeviceGetUUID(handle)),
        )

    return _each_nvidia(library, read)


def nvidia_samples(library: Any = None) -> list[Sample]:
    def read(nvml: Any, handle: Any) -> Sample:
        rates = nvml.nvmlDeviceGetUtilizationRates(handle)
        return Sample(rates.gpu / 100, int(nvml.nvmlDeviceGetMemoryInfo(handle).used))

    return _each_nvidia(library, read)


def _each_nvidia(library: Any, read: Callable[[Any, Any], Any]) -> list[Any]:
    nvml = library or _optional("pynvml")
    if nvml is None:
        return []
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return []  # the package is there, the driver is not
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(n) for n in range(nvml.nvmlDeviceGetCount())]
        return [read(nvml, handle) for handle in handles]
    except nvml.NVMLError:
        return []
    finally:
        nvml.nvmlShutdown()


def amd(library: Any = None) -> list[DetectedGpu]:
    def read(smi: Any, handle: Any, number: int) -> DetectedGpu:
        asic = smi.amdsmi_get_gpu_asic_info(handle)
        memory = smi.amdsmi_get_gpu_memory_total(handle, smi.AmdSmiMemoryType.VRAM)
        return DetectedGpu("amd", str(asic["market_name"]), int(memory), str(number))

    return _each_amd(library, read)


def amd_samples(library: Any = None) -> list[Sample]:
    def read(smi: Any, handle: Any, _number: int) -> Sample:
        busy = smi.amdsmi_get_gpu_activity(handle)["gfx_activity"]
        used = smi.amdsmi_get_gpu_memory_usage(handle, smi.AmdSmiMemoryType.VRAM)
        return Sample(busy / 100 if isinstance(busy, int) else None, int(used))

    return _each_amd(library, read)


def _each_amd(library: Any, read: Callable[[Any, Any, int], Any]) -> list[Any]:
    smi = library or _optional("amdsmi")
    if smi is None:
        return []
    try:
        smi.amdsmi_init()
    except smi.AmdSmiException:
        return []
    try:
        handles = smi.amdsmi_get_processor_handles()
        return [read(smi, handle, number) for number, handle in enumerate(handles)]
    except smi.AmdSmiException:
        return []
    finally:
        smi.amdsmi_shut_down()


def apple(run: Callable[[], str] | None = None) -> list[DetectedGpu]:
    if run is None:
        if sys.platform != "darwin":
            return []
        run = _profile
    try:
        displays = json.loads(run())["SPDisplaysDataType"]
        return [
            DetectedGpu("apple", str(one["sppci_model"]), _shared_memory(), str(number))
            for number, one in enumerate(displays)
            if "sppci_cores" in one
        ]
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError):
        return []


def _profile() -> str:
    done = subprocess.run(
        PROFILER, capture_output=True, text=True, timeout=PROFILER_SECONDS, check=True
    )
    return done.stdout


def _shared_memory() -> int:
    """Metal may use about three quarters of the memory that it shares with the cores."""
    from .host import memory_bytes

    return memory_bytes() * 3 // 4


def _optional(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except (ImportError, OSError):  # the package, or the library that it loads
        return None


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


_VENDORS: Final = (nvidia, amd, apple)
_SAMPLERS: Final = (nvidia_samples, amd_samples)
