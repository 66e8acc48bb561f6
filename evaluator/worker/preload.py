"""What a zygote imports once, so that no worker has to: torch, triton and the worker itself.

Nothing here may start a thread or open a device: a fork loses threads, and a CUDA context
does not survive one. Each worker opens the device for itself.
"""

from __future__ import annotations

import contextlib
import os

from . import main  # noqa: F401

_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def preload() -> None:
    """Import triton where it is installed, and build its helper for the GPU where there is one."""
    with contextlib.suppress(ImportError):
        import triton
        import triton.compiler
        import triton.language.extra.cuda.libdevice
        import triton.language.extra.libdevice  # noqa: F401

        if os.path.exists("/dev/nvidiactl") and not _INTERPRETED:
            _build_driver()


def _build_driver() -> None:
    """Compile and load Triton's helper library, which each worker would else do in a second.

    Making the driver asks CUDA nothing; a failure is left to the first worker that needs it,
    whose error says more.
    """
    from triton.backends.nvidia.driver import CudaDriver
    from triton.runtime.driver import driver

    with contextlib.suppress(Exception):
        driver.set_active(CudaDriver())


preload()
