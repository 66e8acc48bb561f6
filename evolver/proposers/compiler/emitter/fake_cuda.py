"""A CUDA target for TorchInductor on a machine that may have no GPU.

Where a real device is visible, nothing is patched and its own properties count. Elsewhere
the functions by which Inductor asks for the device answer as an H200 would, and fake CUDA
tensors get the device guard of meta tensors, which does nothing: a CPU build of torch has none
and refuses every C++ operator that asks for it (``copy_``, ``contiguous``); that of a CUDA
build would look for a driver. Private API
of torch 2.11 to 2.13; a name that a version lacks is left alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from .workloads import EmissionFailed

DEVICE = "cuda:0"

H200 = types.SimpleNamespace(
    name="NVIDIA H200",
    major=9,
    minor=0,
    multi_processor_count=132,
    regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048,
    max_threads_per_block=1024,
    warp_size=32,
    total_memory=141 << 30,
    shared_memory_per_block=49152,
    shared_memory_per_block_optin=232448,
    shared_memory_per_multiprocessor=233472,
    L2_cache_size=50 << 20,
    gcnArchName="",
    uuid="0",
)


@contextlib.contextmanager
def cuda_target(properties: types.SimpleNamespace = H200) -> Iterator[None]:
    """Within the context Inductor lowers for CUDA, device or not."""
    if torch.cuda.is_available():
        yield
        return
    from torch._dynamo.device_interface import CudaInterface
    from torch._inductor.runtime.hints import DeviceProperties
    from torch.utils import _triton

    capability = (properties.major, properties.minor)
    answers: list[tuple[Any, dict[str, Any]]] = [
        (
            torch.cuda,
            {
                "get_device_properties": properties,
                "get_device_capability": capability,
                "get_device_name": properties.name,
                "current_device": 0,
                "device_count": 1,
            },
        ),
        (
            CudaInterface,
            {
                "get_device_properties": properties,
                "get_compute_capability": capability[0] * 10 + capability[1],
                "current_device": 0,
                "is_available": True,
                "is_bf16_supported": True,
                "exchange_device": 0,
                "maybe_exchange_device": 0,
            },
        ),
        (
            CudaInterface.Worker,
            {"get_device_properties": properties, "current_device": 0},
        ),
        (_triton, {"triton_hash_with_backend": "0" * 64}),
    ]
    with contextlib.ExitStack() as stack:
        stack.enter_context(_inert_cuda_guard())
        for owner, names in answers:
            for name, answer in names.items():
                if hasattr(owner, name):
                    stack.enter_context(mock.patch.object(owner, name, _answering(owner, answer)))
        _forget(DeviceProperties)
        stack.callback(_forget, DeviceProperties)
        yield


_GUARD_REGISTRY = "_ZN3c104impl26device_guard_impl_registryE"
"""``c10::impl::device_guard_impl_registry``: one pointer per device type."""


@contextlib.contextmanager
def _inert_cuda_guard() -> Iterator[None]:
    types_of_device = torch._C._autograd.DeviceType
    cuda, meta = types_of_device.CUDA.value, types_of_device.Meta.value
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
        registry = (ctypes.c_void_p * (meta + 1)).in_dll(library, _GUARD_REGISTRY)
    except (OSError, ValueError) as error:
        raise EmissionFailed(
            f"torch {torch.__version__} cannot trace for CUDA without a GPU ({error}); "
            "run on a machine with one, or use torch 2.11 to 2.13"
        ) from error
    before = registry[cuda]
    registry[cuda] = registry[meta]
    try:
        yield
    finally:
        registry[cuda] = before


def _answering(owner: Any, answer: Any) -> Any:
    def function(*_args: Any, **_kwargs: Any) -> Any:
        return answer

    return staticmethod(function) if isinstance(owner, type) else function


def _forget(properties_class: Any) -> None:
    """Device properties are cached per device; the fake's must not outlive it, nor the real's."""
    clear: Callable[[], None] | None = getattr(properties_class.create, "cache_clear", None)
    if clear is not None:
        clear()
