"""Triton's interpreter, mended where it is wrong, and a record of what was launched.

The interpreter runs kernels on CPU tensors with numpy. As shipped, arithmetic and ``tl.dot`` of
bfloat16 work on bit patterns and casts to it truncate, floats are no tensors within a kernel,
and libdevice functions return None (triton#11584); all are mended here. It shows no races and
says nothing of time. It can corrupt the process on an access out of bounds, so it runs in the
sandbox alone. Triton is imported on first use.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import metadata
from typing import Any

import torch

LAUNCH_OPTIONS = ("num_warps", "num_stages", "num_ctas")

_POINTER_TYPES = {
    torch.float64: "*fp64",
    torch.float32: "*fp32",
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.int64: "*i64",
    torch.int32: "*i32",
    torch.int16: "*i16",
    torch.int8: "*i8",
    torch.uint8: "*u8",
    torch.bool: "*i1",
}

_launches: dict[str, dict[str, Any]] = {}
_recording = True


def triton_version() -> str | None:
    """The installed version of triton, without importing it."""
    try:
        return metadata.version("triton")
    except metadata.PackageNotFoundError:
        return None


def record_launches(wanted: bool) -> None:
    """Whether the launches that follow are worth compiling."""
    global _recording
    _recording = wanted


def recorded_launches() -> list[dict[str, Any]]:
    """The distinct launches so far: kernel, parameters with their types, options."""
    return list(_launches.values())


def install() -> None:
    """Mend the interpreter and start recording; call it before a candidate is imported."""
    from triton.runtime import interpreter
    from triton.runtime.interpreter import InterpretedFunction, InterpreterBuilder

    InterpreterBuilder.create_dot = _dot
    InterpreterBuilder.binary_op = _bf16_arithmetic(InterpreterBuilder.binary_op)
    InterpreterBuilder.unary_op = _bf16_arithmetic(InterpreterBuilder.unary_op)
    InterpreterBuilder.cast_impl = _bf16_cast(InterpreterBuilder.cast_impl)
    interpreter._implicit_cvt = _with_float_tensors(interpreter._implicit_cvt)
    InterpreterBuilder.get_bf16 = _bf16_constant
    _install_libdevice()
    original = InterpretedFunction.run

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        if _recording:
            _record(self, args, kwargs)
        with _aliases_bound(self.fn.__globals__):
            return original(self, *args, grid=grid, warmup=warmup, **kwargs)

    InterpretedFunction.run = run


@contextmanager
def _aliases_bound(names: dict[str, Any]) -> Iterator[None]:
    """Let functions of the language that a module gave a name of its own be called.

    The interpreter patches them in triton's modules alone, so ``fast_exp = tl.math.exp`` at
    the top of a file would lack what the compiler passes along.
    """
    from triton.language.core import is_builtin
    from triton.runtime.interpreter import interpreter_semantic

    aliases = {n: f for n, f in names.items() if callable(f) and is_builtin(f)}
    names.update({n: partial(f, _semantic=interpreter_semantic) for n, f in aliases.items()})
    try:
        yield
    finally:
        names.update(aliases)


def _record(kernel: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Remember one launch, once per kernel, types, constants and options."""
    options = {k: v for k, v in kwargs.items() if k in LAUNCH_OPTIONS}
    own = {k: v for k, v in kwargs.items() if k in kernel.arg_names}
    bound = inspect.signature(kernel.fn).bind(*args, **own)
    bound.apply_defaults()
    constants = _constexpr_names(kernel.fn)
    parameters = [_parameter(n, v, n in constants) for n, v in bound.arguments.items()]
    launch = {"kernel": kernel.fn.__name__, "parameters": parameters, "options": options}
    _launches.setdefault(json.dumps(launch, sort_keys=True, default=str), launch)


def _constexpr_names(function: Callable[..., Any]) -> set[str]:
    notes = inspect.get_annotations(function)
    return {n for n, note in notes.items() if "constexpr" in str(note)}


def _parameter(name: str, value: Any, constant: bool) -> dict[str, Any]:
    """One launch parameter as ``triton.compile`` wants it described."""
    if isinstance(value, torch.Tensor):
        kind = _POINTER_TYPES.get(value.dtype, "*fp32")
        return {"name": name, "type": kind, "aligned": value.data_ptr() % 16 == 0}
    if constant or value is None or isinstance(value, str):
        return {"name": name, "type": "constexpr", "value": _plain(value)}
    if isinstance(value, bool):
        return {"name": name, "type": "i1", "aligned": False}
    if isinstance(value, int):
        if value == 1:  # triton specialises on it
            return {"name": name, "type": "constexpr", "value": 1}
        wide = not -(2**31) <= value < 2**31
        return {"name": name, "type": "i64" if wide else "i32", "aligned": value % 16 == 0}
    return {"name": name, "type": "fp32", "aligned": False}


def _plain(value: Any) -> Any:
    """A constant as JSON can carry it; triton types by their name behind ``tl.``."""
    inner = getattr(value, "value", value)
    if inner is None or isinstance(inner, (bool, int, float, str)):
        return inner
    return {"triton": str(inner)}


def _numpy() -> Any:
    """Numpy as the interpreter itself imported it; it is no dependency of ours."""
    from triton.runtime import interpreter

    return interpreter.np


def _dot(
    self: Any,  # noqa: ARG001 (replaces a method)
    a: Any,
    b: Any,
    d: Any,
    input_precision: Any,  # noqa: ARG001
    max_num_imprecise_acc: Any,  # noqa: ARG001
) -> Any:
    """``tl.dot`` with the factors widened to the accumulator's type first."""
    from triton.runtime.interpreter import TensorHandle

    factors = [_widened(h).astype(d.data.dtype) for h in (a, b)]
    np = _numpy()
    return TensorHandle(np.matmul(*factors) + d.data, d.dtype.scalar)


def _widened(handle: Any) -> Any:
    """bfloat16 and float8, which numpy holds as bit patterns, as float32 values."""
    import triton.language as tl
    from triton.runtime import interpreter

    scalar = handle.dtype.scalar
    narrow = scalar.is_floating() and scalar.primitive_bitwidth == 8
    np = _numpy()
    if narrow or scalar == tl.bfloat16:
        bits = interpreter._convert_float(handle.data, scalar, tl.float32, None)
        return bits.view(np.float32)
    return handle.data


def _bf16_constant(self: Any, value: float) -> Any:  # noqa: ARG001 (replaces a method)
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    return TensorHandle(_bf16_bits(_numpy().array([value])), tl.bfloat16)


def _bf16_bits(values: Any) -> Any:
    """Values as the bit patterns of the nearest bfloat16, ties to even; NaN stays NaN."""
    np = _numpy()
    wide = np.asarray(values, np.float32)
    bits = np.atleast_1d(wide).view(np.uint32)
    rounded = np.where(np.isnan(wide), 0x7FC0, (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)
    return rounded.astype(np.uint16).reshape(wide.shape or (1,))


def _bf16_arithmetic(original: Callable[..., Any]) -> Callable[..., Any]:
    """An operation of the interpreter's, with bfloat16 computed in float32 and rounded."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    np = _numpy()
    on_bits = (np.bitwise_and, np.bitwise_or, np.bitwise_xor)

    def apply(self: Any, *handles_and_op: Any) -> Any:
        *handles, op = handles_and_op
        if op in on_bits or any(h.dtype.scalar != tl.bfloat16 for h in handles):
            return original(self, *handles_and_op)
        result = op(*(_widened(h) for h in handles))
        told = result.astype(np.uint16) if result.dtype == np.bool_ else _bf16_bits(result)
        return TensorHandle(told, tl.bfloat16)

    return apply


def _bf16_cast(original: Callable[..., Any]) -> Callable[..., Any]:
    """The interpreter's cast, to and from bfloat16 by value, rounded to nearest."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    def cast(self: Any, source: Any, kind: Any) -> Any:
        if tl.bfloat16 not in (source.dtype.scalar, kind.scalar):
            return original(self, source, kind)
        values = _widened(source)
        if kind.scalar == tl.bfloat16:
            return TensorHandle(_bf16_bits(values), tl.bfloat16)
        plain = original(self, TensorHandle(values, tl.float32), kind)
        return plain if kind.scalar != tl.float32 else TensorHandle(values, tl.float32)

    return cast


def _with_float_tensors(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """How arguments of a launch become values in the kernel, floats as on a device."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    def convert(argument: Any) -> Any:
        if not isinstance(argument, float):
            return original(argument)
        data = _numpy().array([argument], _numpy().float32)
        return tl.core.tensor(TensorHandle(data, tl.float32), tl.float32)

    return convert


def _install_libdevice() -> None:
    from triton.language.extra import libdevice
    from triton.language.extra.cuda import libdevice as cuda_libdevice

    for name, function in _libdevice_functions().items():
        for module in (libdevice, cuda_libdevice):
            setattr(module, name, _libdevice(name, function))


def _libdevice_functions() -> dict[str, Callable[..., Any]]:

    np = _numpy()

    def away_from_zero(x: Any) -> Any:
        return np.trunc(x + np.copysign(0.5, x))

    erf = np.vectorize(math.erf, otypes=[np.float64])
    gamma_ln = np.vectorize(math.lgamma, otypes=[np.float64])
    return {
        "rsqrt": lambda x: 1 / np.sqrt(x),
        "erf": erf,
        "erfc": lambda x: 1 - erf(x),
        "lgamma": gamma_ln,
        "rint": np.rint,
        "nearbyint": np.rint,
        "llrint": np.rint,
        "round": away_from_zero,
        "pow": np.power,
        "fabs": np.abs,
        "abs": np.abs,
        "fmod": np.fmod,
        "div_rn": np.divide,
        "fast_dividef": np.divide,
        "fast_expf": np.exp,
        "fast_logf": np.log,
        "fast_tanhf": np.tanh,
        "isnan": np.isnan,
        "isinf": np.isinf,
        "finitef": np.isfinite,
        "signbit": np.signbit,
        **_same_name_in_numpy(),
    }


def _same_name_in_numpy() -> dict[str, Callable[..., Any]]:

    plain = "exp exp2 log log2 log10 log1p expm1 tanh sinh cosh sqrt cbrt sin cos tan floor ceil"
    plain += " trunc hypot copysign"
    inverse = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2"}
    pairs = {**{n: n for n in plain.split()}, **inverse}
    np = _numpy()
    return {name: getattr(np, own) for name, own in pairs.items()}


_PREDICATES = ("isnan", "isinf", "finitef", "signbit")


def _libdevice(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A libdevice function over interpreter tensors; narrow floats are computed in float32."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    np = _numpy()

    def call(*args: Any, **_: Any) -> Any:
        first = next(a for a in args if isinstance(a, tl.core.tensor))
        values = [_widened(a.handle) if isinstance(a, tl.core.tensor) else a for a in args]
        result = np.asarray(function(*values))
        scalar = tl.int32 if name in _PREDICATES else first.dtype
        kind = tl.core.block_type(scalar, first.shape) if first.type.is_block() else scalar
        data = (
            result.astype(np.int32)
            if name in _PREDICATES
            else result.astype(first.handle.data.dtype)
        )
        return tl.core.tensor(TensorHandle(data, scalar), kind)

    return call
