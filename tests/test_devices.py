"""Limits of devices by the names that drivers give them."""

from __future__ import annotations

import pytest

from htareport.rank.device_peaks import Precision, device_of

NAMES = {
    "Tesla V100-SXM2-32GB": "V100 SXM",
    "Tesla V100-DGXS-32GB": "V100 SXM",
    "Tesla V100-PCIE-16GB": "V100 PCIe",
    "Tesla V100S-PCIE-32GB": "V100S PCIe",
    "Tesla T4": "T4",
    "NVIDIA A100-SXM4-40GB": "A100 40 GB SXM",
    "A100-PCIE-40GB": "A100 40 GB PCIe",
    "NVIDIA A100-SXM4-80GB": "A100 80 GB SXM",
    "NVIDIA A100 80GB PCIe": "A100 80 GB PCIe",
    "NVIDIA A10": "A10",
    "NVIDIA A30": "A30",
    "NVIDIA A40": "A40",
    "NVIDIA L4": "L4",
    "NVIDIA L40": "L40",
    "NVIDIA L40S": "L40S",
    "NVIDIA H100 80GB HBM3": "H100 SXM",
    "NVIDIA H100 PCIe": "H100 PCIe",
    "NVIDIA H100 NVL": "H100 NVL",
    "NVIDIA H200": "H200 SXM",
    "NVIDIA H200 NVL": "H200 NVL",
    "NVIDIA GH200 480GB": "GH200 96 GB",
    "NVIDIA GH200 144G HBM3e": "GH200 144 GB",
    "NVIDIA B200": "B200",
    "NVIDIA GB200": "GB200",
    "NVIDIA GeForce RTX 2080 Ti": "RTX 2080 Ti",
    "NVIDIA GeForce RTX 3090": "RTX 3090",
    "NVIDIA GeForce RTX 4090": "RTX 4090",
    "NVIDIA GeForce RTX 5090": "RTX 5090",
    "NVIDIA RTX 6000 Ada Generation": "RTX 6000 Ada",
    "NVIDIA RTX A6000": "RTX A6000",
    "AMD Radeon Instinct MI50": "MI50",
    "AMD Instinct MI100": "MI100",
    "AMD Instinct MI210": "MI210",
    "AMD Instinct MI250X / MI250": "MI250X (one of two dies)",
    "AMD Instinct MI250": "MI250 (one of two dies)",
    "AMD Instinct MI300A": "MI300A",
    "AMD Instinct MI300X VF": "MI300X",
    "AMD Instinct MI325X": "MI325X",
    "AMD Instinct MI350X": "MI350X",
    "AMD Instinct MI355X": "MI355X",
    "Radeon RX 7900 XTX": "RX 7900 XTX",
}
OTHERS = [
    "", "NVIDIA A100-PG509-200", "NVIDIA A10G", "NVIDIA A100-SXM4-40GB MIG 3g.20gb", "NVIDIA GeForce RTX 3090 Ti",
    "NVIDIA GeForce RTX 4090 D", "NVIDIA H100 64GB HBM3", "AMD Instinct MI308X", "NVIDIA H20", "GRID V100-SXM2-32GB",
    "NVIDIA GeForce RTX 4090 Laptop GPU",
]  # fmt: skip


@pytest.mark.parametrize(("name", "known"), NAMES.items())
def test_known(name, known):
    device = device_of(name)
    assert device.name == known
    assert device.vendor == ("AMD" if "AMD" in name or "Radeon" in name else "NVIDIA")
    assert device.source


@pytest.mark.parametrize("name", OTHERS)
def test_what_only_looks_like_one_is_unknown(name):
    assert device_of(name) is None


def test_numbers_are_in_plain_units():
    device = device_of("NVIDIA H100 80GB HBM3")
    assert device.peaks[Precision.BF16] == 989.5e12
    assert (device.bandwidth, device.memory, device.generation) == (3.35e12, 80e9, 9)


@pytest.mark.parametrize("name", NAMES)
def test_peaks_fit_each_other(name):
    """Dense and in one scale: fewer bits are never slower, and eight bits are twice as fast as sixteen."""
    peaks = device_of(name).peaks
    order = [Precision.FP64, Precision.FP32, Precision.TF32, Precision.FP16, Precision.FP8]
    there = [peaks[each] for each in order if each in peaks]
    assert there == sorted(there)
    if Precision.FP8 in peaks:
        assert peaks[Precision.FP8] / peaks[Precision.FP16] == pytest.approx(2, rel=0.02)


def test_no_tf32_where_the_hardware_has_none():
    for name in ("Tesla V100-SXM2-32GB", "Tesla T4", "AMD Instinct MI210", "AMD Instinct MI355X"):
        assert Precision.TF32 not in device_of(name).peaks
