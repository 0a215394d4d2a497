"""What the names of GPUs say: vendor, family, memory and form.

    NVIDIA A100-SXM4-40GB      nvidia · a100           · 40 GB · sxm4
    Tesla V100-PCIE-16GB       nvidia · v100           · 16 GB · pcie
    NVIDIA GeForce RTX 3090 Ti nvidia · 3090 ti        ·       · geforce rtx
    AMD Instinct MI300X        amd    · mi300x         ·       · instinct
    Apple M2 Max               apple  · m2 max         ·

A task names a GPU as its user would: "A100", "nvidia a100", "A100 80GB", "A100-SXM4". It gets
every GPU of exactly that family, and of the vendor, memory and form that it names. Words that
are not known belong to the family, so "A100" is no A100X, no vGPU (A100-10C) and no MIG slice,
and "RTX 4090" is no laptop's.

A name with a slash stands for several GPUs that a driver cannot tell apart.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_VENDORS: Final = {
    "nvidia": "nvidia",
    "tesla": "nvidia",
    "geforce": "nvidia",
    "quadro": "nvidia",
    "amd": "amd",
    "radeon": "amd",
    "instinct": "amd",
    "intel": "intel",
    "apple": "apple",
}
_MAKERS: Final = frozenset(_VENDORS.values())
_LINES: Final = frozenset(
    [
        *("tesla", "geforce", "quadro", "rtx", "gtx"),
        *("radeon", "instinct", "rx"),
        *("arc", "data", "center", "gpu", "graphics"),
    ]
)
"""Product lines: beside a family they may be left out."""
_FORM: Final = re.compile(r"sxm\d?|pcie|nvl|nvlink|oam|hbm\d?e?|vf")
"""How a GPU is built in or passed on; it computes the same."""
_MEMORY: Final = re.compile(r"(\d+)g(?:i?b)?")
_JOINED: Final = re.compile(r"(rtx|gtx|rx)(\d.*)")
_MARKS: Final = re.compile(r"\((?:r|tm|c)\)|[®™]")
_GAP: Final = re.compile(r"[\s_\-,()\[\]]+")
_SPACED_MEMORY: Final = re.compile(r"(\d+)\s+(g(?:i?b)?)\b")
_TOLERANCE: Final = 0.08
"""A name rounds: an "80 GB" H100 has 79.6 GiB, a "24 GB" L4 22.5 GiB."""
_KEPT_MAX: Final = 4096


class GpuName(NamedTuple):
    vendor: str
    """Empty if the name does not say."""
    family: tuple[str, ...]
    """Sorted; empty if it names a vendor alone."""
    memory_gb: int
    """0 if the name does not say."""
    form: frozenset[str]
    """Product lines and ways to build it in."""


_kept: dict[str, tuple[GpuName, ...]] = {}


def parsed(name: str) -> tuple[GpuName, ...]:
    """What a name may stand for; more than one only if it has a slash."""
    found = _kept.get(name)
    if found is None:
        if len(_kept) >= _KEPT_MAX:
            _kept.clear()
        found = tuple(_parse(part) for part in name.split("/") if part.strip())
        _kept[name] = found
    return found


def _parse(name: str) -> GpuName:
    text = _SPACED_MEMORY.sub(r"\1\2", _MARKS.sub(" ", name.lower()))
    words: list[str] = []
    for word in _GAP.split(text):
        joined = _JOINED.fullmatch(word)
        words.extend(joined.groups() if joined else [word] * bool(word))
    vendor = next((_VENDORS[word] for word in words if word in _VENDORS), "")
    sizes = [int(found[1]) for found in map(_MEMORY.fullmatch, words) if found]
    rest = [word for word in words if word not in _MAKERS and not _MEMORY.fullmatch(word)]
    form = {word for word in rest if _FORM.fullmatch(word)}
    family = [word for word in rest if word not in form]
    if any(any(map(str.isdigit, word)) for word in family):
        lines = _LINES.intersection(family)
        form |= lines
        family = [word for word in family if word not in lines]
    memory_gb = sizes[0] if len(sizes) == 1 else 0
    return GpuName(vendor, tuple(sorted(set(family))), memory_gb, frozenset(form))


def gpu_suits(wanted: str, model: str, vendor: str, memory: int) -> bool:
    """Whether a GPU with this name, vendor and number of bytes is what a task names."""
    if not wanted or wanted == model:
        return True
    asked = parsed(wanted)
    return any(_is_one(want, has, vendor, memory) for want in asked for has in parsed(model))


def _is_one(wanted: GpuName, has: GpuName, vendor: str, memory: int) -> bool:
    maker = vendor.lower() or has.vendor
    if wanted.family:
        # Who declares "A100" without a vendor means NVIDIA's.
        is_kind = wanted.family == has.family and (not maker or wanted.vendor in ("", maker))
    else:
        is_kind = bool(maker) and wanted.vendor == maker
    return is_kind and wanted.form <= has.form and _has_memory(wanted, has, memory)


def vendor_of(model: str, vendor: str) -> str:
    """As it was detected or declared, else as the name says; empty if neither does."""
    return vendor or next((one.vendor for one in parsed(model)), "")


def _has_memory(wanted: GpuName, has: GpuName, memory: int) -> bool:
    asked = wanted.memory_gb
    if not asked or has.memory_gb:
        return asked in (0, has.memory_gb)
    return any(abs(memory - asked * unit) <= _TOLERANCE * asked * unit for unit in _UNITS)


_UNITS: Final = (10**9, 1 << 30)


def family_keys(name: str) -> tuple[str, ...]:
    """What a GPU of this name is found by."""
    return tuple(dict.fromkeys(" ".join(one.family) for one in parsed(name) if one.family))


def key_asked(wanted: str) -> str:
    """What every GPU that suits this name is found by; empty if there is no such thing."""
    names = parsed(wanted)
    return " ".join(names[0].family) if len(names) == 1 else ""
