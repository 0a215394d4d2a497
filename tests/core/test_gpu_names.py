"""What a task calls a GPU, and which GPUs that means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mycel.core.matching.index_keys import facets_asked, facets_of
from mycel.core.matching.slot_counts import gpus_suiting
from mycel.core.model.gpu_names import gpu_suits, vendor_of
from mycel.core.model.resources import Capabilities, Gpu, GpuRequirement, Ledger, Requirements
from mycel.core.model.work import Shape

GIB = 1 << 30
DETECTED = {
    "NVIDIA A100-SXM4-40GB": ("nvidia", 42_505_273_344),
    "NVIDIA A100 80GB PCIe": ("nvidia", 84_974_239_744),
    "NVIDIA A100X": ("nvidia", 85 * 10**9),
    "NVIDIA A100-SXM4-40GB MIG 1g.5gb": ("nvidia", 5 * GIB),
    "GRID A100-10C": ("nvidia", 10 * GIB),
    "NVIDIA A10": ("nvidia", 23_836_098_560),
    "NVIDIA A10G": ("nvidia", 23_836_098_560),
    "NVIDIA A1000": ("nvidia", 8 * GIB),
    "NVIDIA RTX A1000 6GB Laptop GPU": ("nvidia", 6 * GIB),
    "NVIDIA RTX A6000": ("nvidia", 48 * GIB),
    "NVIDIA RTX 6000 Ada Generation": ("nvidia", 48 * GIB),
    "Quadro RTX 6000": ("nvidia", 24 * GIB),
    "NVIDIA GeForce RTX 3090": ("nvidia", 24 * GIB),
    "NVIDIA GeForce RTX 3090 Ti": ("nvidia", 24 * GIB),
    "NVIDIA GeForce RTX 4090 Laptop GPU": ("nvidia", 16 * GIB),
    "NVIDIA H100 80GB HBM3": ("nvidia", 85_520_809_984),
    "NVIDIA H100 PCIe": ("nvidia", 85_520_809_984),
    "NVIDIA L40": ("nvidia", 48 * GIB),
    "NVIDIA L40S": ("nvidia", 48 * GIB),
    "Tesla T4": ("nvidia", 15_843_721_216),
    "Tesla V100-SXM2-16GB": ("nvidia", 16_945_512_448),
    "NVIDIA TITAN RTX": ("nvidia", 24 * GIB),
    "AMD Instinct MI300X": ("amd", 192 * GIB),
    "Instinct MI250X / MI250": ("amd", 64 * GIB),
    "AMD Radeon RX 7900 XT/7900 XTX": ("amd", 24 * GIB),
    "AMD Radeon RX 7900 GRE": ("amd", 16 * GIB),
    "Intel(R) Data Center GPU Max 1550": ("intel", 128 * GIB),
    "Intel(R) Arc(TM) A770 Graphics": ("intel", 16 * GIB),
    "Apple M2": ("apple", 12 * GIB),
    "Apple M2 Max": ("apple", 48 * GIB),
}


def found_by(wanted: str) -> list[str]:
    return [
        name
        for name, (vendor, memory) in DETECTED.items()
        if gpu_suits(wanted, name, vendor, memory)
    ]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("A100", ["NVIDIA A100-SXM4-40GB", "NVIDIA A100 80GB PCIe"]),
        ("a100", ["NVIDIA A100-SXM4-40GB", "NVIDIA A100 80GB PCIe"]),
        ("nvidia A100", ["NVIDIA A100-SXM4-40GB", "NVIDIA A100 80GB PCIe"]),
        ("A100-SXM4-40GB", ["NVIDIA A100-SXM4-40GB"]),
        ("A100 80 GB", ["NVIDIA A100 80GB PCIe"]),
        ("A100-PCIE", ["NVIDIA A100 80GB PCIe"]),
        ("amd A100", []),
        ("A100-SXM4-40GB MIG 1g.5gb", ["NVIDIA A100-SXM4-40GB MIG 1g.5gb"]),
        ("A10", ["NVIDIA A10"]),
        ("A1000", ["NVIDIA A1000"]),
        ("A6000", ["NVIDIA RTX A6000"]),
        ("RTX 6000", ["Quadro RTX 6000"]),
        ("RTX 6000 Ada Generation", ["NVIDIA RTX 6000 Ada Generation"]),
        ("RTX3090", ["NVIDIA GeForce RTX 3090"]),
        ("3090", ["NVIDIA GeForce RTX 3090"]),
        ("GeForce RTX 3090 Ti", ["NVIDIA GeForce RTX 3090 Ti"]),
        ("RTX 4090", []),
        ("H100", ["NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe"]),
        ("H100 80GB", ["NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe"]),
        ("H100 96GB", []),
        ("L40", ["NVIDIA L40"]),
        ("T4", ["Tesla T4"]),
        ("T4 16GB", ["Tesla T4"]),
        ("V100", ["Tesla V100-SXM2-16GB"]),
        ("V100 32GB", []),
        ("MI300X", ["AMD Instinct MI300X"]),
        ("MI250", ["Instinct MI250X / MI250"]),
        ("7900 XTX", ["AMD Radeon RX 7900 XT/7900 XTX"]),
        ("RX 7900", []),
        ("Max 1550", ["Intel(R) Data Center GPU Max 1550"]),
        ("A770", ["Intel(R) Arc(TM) A770 Graphics"]),
        ("M2", ["Apple M2"]),
        ("apple m2 max", ["Apple M2 Max"]),
        ("apple", ["Apple M2", "Apple M2 Max"]),
        ("apple 48GB", ["Apple M2 Max"]),
        ("-", []),
    ],
)
def test_a_name_means_its_family(wanted: str, found: list[str]) -> None:
    assert found_by(wanted) == found


@pytest.mark.parametrize("name", DETECTED)
def test_a_detected_name_means_itself(name: str) -> None:
    assert name in found_by(name)
    assert name.upper() not in DETECTED or name in found_by(name.lower())


def test_what_owners_declare_is_matched_as_it_was() -> None:
    assert gpu_suits("our own thing", "our own thing", "", 0)
    assert gpu_suits("NVIDIA A100", "A100", "", 40 * GIB), "no vendor is declared"
    assert not gpu_suits("NVIDIA A100", "A100", "amd", 40 * GIB)
    assert gpu_suits("", "anything", "", 0)


def test_the_vendor_is_the_one_declared_else_as_the_name_says() -> None:
    assert vendor_of("A100", "nvidia") == "nvidia"
    assert vendor_of("Radeon Pro VII", "") == "amd"
    assert vendor_of("A100", "") == ""


def test_books_and_expectations_agree() -> None:
    gpus = tuple(Gpu(name, memory, vendor) for name, (vendor, memory) in DETECTED.items())
    wanted = GpuRequirement(count=2, model="A100")
    assert gpus_suiting(wanted, gpus) == [0, 1]
    booking = Ledger(Capabilities(gpus=gpus)).book(Requirements(gpus=wanted))
    assert booking is not None
    assert booking.gpu_millis == ((0, 1000), (1, 1000))


WORDS = "A100 a100 A1000 RTX GTX 3090 Ti SXM4 PCIe 40GB 80GB NVIDIA AMD Radeon / - ( )"
words = st.sampled_from(WORDS.split())
names = st.lists(words, max_size=6).map(" ".join) | st.sampled_from(list(DETECTED))


@given(names, names, st.sampled_from(["", "nvidia", "amd"]), st.sampled_from([0, 40, 80]))
def test_whoever_suits_can_be_found(wanted: str, has: str, vendor: str, memory: int) -> None:
    gpu = Gpu(has, memory * 10**9, vendor)
    if not gpu_suits(wanted, gpu.model, gpu.vendor, gpu.memory):
        return
    shape = Shape("process", Requirements(gpus=GpuRequirement(model=wanted)))
    machine = Capabilities(drivers=("process",), gpus=(gpu,))
    assert set(facets_asked(shape)) <= set(facets_of(machine))
