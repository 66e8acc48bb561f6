"""Who wrote a kernel, by its name: what a better one is up against."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache


class Origin(StrEnum):
    """Where a kernel comes from."""

    EAGER = "eager"
    """ATen's own: pointwise, reductions, sorts, indexing."""
    COMPILED = "compiled"
    """TorchInductor's Triton kernels."""
    LIBRARY = "library"
    """cuBLAS, cuDNN, CUTLASS, hipBLASLt, MIOpen, Composable Kernel's matrix products."""
    COMMUNICATION = "communication"
    COPY = "copy"
    HAND_WRITTEN = "hand_written"
    """Anything else: the project's own, or another project's, in CUDA, HIP or Triton."""
    OPERATOR = "operator"
    """An operator on the CPU, where the trace has no device."""


OPENNESS = {
    Origin.EAGER: 1.0,
    Origin.OPERATOR: 1.0,
    Origin.COPY: 0.7,
    Origin.COMPILED: 0.6,
    Origin.HAND_WRITTEN: 0.5,
    Origin.LIBRARY: 0.2,
    Origin.COMMUNICATION: 0.0,
}
"""How much of the time that a roofline leaves is open to a new kernel: our judgement, for the
order of targets alone. Fusing what is eager is the rule, beating a vendor's library is not."""

_COMMUNICATION = re.compile(r"nccl|rccl|all_?reduce|allgather|reduce_?scatter|deep_?ep", re.I)
_COMPILED = re.compile(r"^triton_(?:poi|red|per|tem|for|mm|unk|spl)\w*_")
_LIBRARY = re.compile(
    r"gemm|^Cijk_|xmma|cublas|cudnn|cutlass|gemv|splitKreduce|ck::|ck_tile.*Gemm|miopen|"
    r"wgrad|dgrad|convolve|winograd|cask|_scudnn|flash_fwd|flash_bwd|fmha",
    re.I,
)
_EAGER = re.compile(r"at::native|at_cuda_detail|at::cuda|hipcub|^void cub::|DeviceScan|thrust")
_LIBRARY_OPERATOR = re.compile(r"::_?(?:addmm|mm|bmm|baddbmm|linear|matmul|conv\w*)$|attention")


def origin_of_operator(name: str) -> Origin:
    """Return who answers for an operator on the CPU."""
    return Origin.LIBRARY if _LIBRARY_OPERATOR.search(name) else Origin.OPERATOR


@lru_cache(maxsize=1 << 16)
def origin_of(name: str) -> Origin:
    """Return where the kernel ``name`` comes from."""
    if name.startswith(("Memcpy", "Memset", "CopyDevice", "__amd_rocclr")):
        return Origin.COPY
    for pattern, origin in (
        (_COMMUNICATION, Origin.COMMUNICATION),
        (_COMPILED, Origin.COMPILED),
        (_EAGER, Origin.EAGER),
        (_LIBRARY, Origin.LIBRARY),
    ):
        if pattern.search(name):
            return origin
    return Origin.HAND_WRITTEN
