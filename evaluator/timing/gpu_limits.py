"""What a GPU can do at most, by the driver's name for the device.

Each figure is an upper bound, for a time below what follows from it is called impossible. DRAM
bandwidth is pins times the memory's rate (vendors round it down). The L2 cache is bounded by
what the multiprocessors can take from it: 64 bytes per clock each, at the highest clock. Sizes
of caches are as CUDA reports them. A device that is not listed, a MIG slice among them, has no
bounds, and nothing is concluded for it.

Arithmetic is that of float32 outside of tensor cores, and of float16 and bfloat16 within them
(dense, float32 sums), per multiprocessor and clock.

Sources: NVIDIA's data sheets and architecture white papers for V100, A100, H100, H200, Ada and
Ampere GA102; ``cudaDeviceProp`` for caches.
"""

from __future__ import annotations

from dataclasses import dataclass

_L2_BYTES_PER_CLOCK = 64
_MIB = 1 << 20


@dataclass(frozen=True)
class GpuLimits:
    """Bounds of one device."""

    dram_bytes_per_us: float
    l2_bytes: int
    l2_bytes_per_us: float
    float32_flops_per_us: float
    half_flops_per_us: float


_VOLTA, _TURING, _AMPERE = (128, 1024), (128, 1024), (128, 2048)
_GA102, _ADA, _ADA_DATACENTER, _HOPPER = (256, 512), (256, 512), (256, 1024), (256, 4096)
"""Per multiprocessor and clock: FLOPs of float32, and of halves in tensor cores."""


def _limits(
    gb_per_s: float, l2_mib: int, processors: int, clock_mhz: int, arithmetic: tuple[int, int]
) -> GpuLimits:
    float32, half = arithmetic
    return GpuLimits(
        dram_bytes_per_us=gb_per_s * 1e3,
        l2_bytes=l2_mib * _MIB,
        l2_bytes_per_us=float(processors * _L2_BYTES_PER_CLOCK * clock_mhz),
        float32_flops_per_us=float(processors * float32 * clock_mhz),
        half_flops_per_us=float(processors * half * clock_mhz),
    )


GPU_LIMITS = {
    "NVIDIA H200": _limits(4917, 60, 132, 1980, _HOPPER),
    "NVIDIA H100 80GB HBM3": _limits(3352, 50, 132, 1980, _HOPPER),
    "NVIDIA H100 PCIe": _limits(2039, 50, 114, 1755, _HOPPER),
    "NVIDIA A100-SXM4-80GB": _limits(2039, 40, 108, 1410, _AMPERE),
    "NVIDIA A100-SXM4-40GB": _limits(1555, 40, 108, 1410, _AMPERE),
    "NVIDIA A100-PCIE-40GB": _limits(1555, 40, 108, 1410, _AMPERE),
    "NVIDIA A100 80GB PCIe": _limits(1935, 40, 108, 1410, _AMPERE),
    "NVIDIA L40S": _limits(864, 96, 142, 2520, _ADA_DATACENTER),
    "NVIDIA L4": _limits(300, 48, 58, 2040, _ADA_DATACENTER),
    "NVIDIA A10": _limits(600, 6, 72, 1695, _ADA_DATACENTER),
    "NVIDIA GeForce RTX 4090": _limits(1008, 72, 128, 3105, _ADA),
    "NVIDIA GeForce RTX 3090": _limits(936, 6, 82, 2100, _GA102),
    "Tesla V100-SXM2-32GB": _limits(900, 6, 80, 1530, _VOLTA),
    "Tesla V100-SXM2-16GB": _limits(900, 6, 80, 1530, _VOLTA),
    "Tesla T4": _limits(320, 4, 40, 1590, _TURING),
}
