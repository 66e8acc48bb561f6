"""Row programs as C++ with OpenMP: a module with ``SOURCE``, ``SIGNATURES`` and the entry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evolver.proposers.synth.emit import cpp_text as cpp
from evolver.proposers.synth.emit.call import call_lines, head_lines, indented, uses
from evolver.proposers.synth.emit.cpp_kernel import CppKernel
from evolver.proposers.synth.emit.dispatch import Variant, entry
from evolver.proposers.synth.emit.host import Host
from evolver.proposers.synth.emit.memory import Tensor
from evolver.proposers.synth.emit.reference import Reference
from evolver.proposers.synth.emit.scopes import EmitError
from evolver.proposers.synth.plan import KernelStep, LibraryStep, Plan


@dataclass(frozen=True)
class NativeFunction:
    """An exported function: its C++, and the types of its parameters."""

    name: str
    code: str
    types: tuple[str, ...]


@dataclass(frozen=True)
class CppProgram:
    """What one row program became."""

    functions: tuple[NativeFunction, ...]
    body: tuple[str, ...]
    """Of the Python function around them."""


def cpp_program(variant: Variant, reference: Reference, prefix: str) -> CppProgram:
    """Return the C++ of a variant, its functions named after ``prefix``.

    Raises:
        EmitError: something of it cannot be written in C++.
    """
    plan = variant.plan
    host = Host(plan, reference.names(), variant.group)
    functions: list[NativeFunction] = []
    for steps in _launches(plan):
        if isinstance(steps, LibraryStep):
            host.library(steps)
            continue
        name = prefix if not functions else f"{prefix}_{len(functions) + 1}"
        functions.append(_function(name, host, steps, reference))
    host.lines += host.returned()
    return CppProgram(tuple(functions), tuple(host.lines))


def cpp_module(variants: Sequence[Variant], reference: Reference) -> str:
    """Return a candidate for the ``cpp`` backend.

    Raises:
        EmitError: something of a plan cannot be written in C++.
    """
    programs = []
    for number, variant in enumerate(variants, 1):
        prefix = reference.function if len(variants) == 1 else f"{reference.function}_{number}"
        programs.append(cpp_program(variant, reference, prefix))
    functions = [f for p in programs for f in p.functions]
    signatures = [line for f in functions for line in _signature(f)]
    source = cpp_source(functions).replace('"""', "'''")
    parts = [
        f'import torch\n\nSOURCE = r"""\n{source}"""',
        "\n".join(["SIGNATURES = {", *signatures, "}"]),
    ]
    function = entry(reference, [p.body for p in programs], variants)
    return "\n".join(parts) + f"\n\n\n{function}\n"


def _signature(function: NativeFunction) -> list[str]:
    types = [f'"{c_type}"' for c_type in function.types]
    if len(types) <= 4:
        return [f'    "{function.name}": ({", ".join(types)},),']
    rows = [types[i : i + 6] for i in range(0, len(types), 6)]
    lines = [f"        {', '.join(row)}," for row in rows]
    return [f'    "{function.name}": (', *lines, "    ),"]


def cpp_source(functions: Sequence[NativeFunction]) -> str:
    """Return the text of ``SOURCE``."""
    body = "\n".join(f.code for f in functions)
    helpers = cpp.helpers_of(body)
    text = f"{helpers}\n{body}" if helpers else body
    headers = [h for h, words in _HEADERS if not words or any(w in text for w in words)]
    includes = "\n".join(f"#include <{h}>" for h in headers)
    return f"{includes}\n\n{text}"


_HEADERS = (
    ("algorithm", ("std::copy(", "std::partial_sort")),
    ("cmath", ()),
    ("cstdint", ()),
    ("cstring", ("std::memcpy",)),
    ("limits", ("numeric_limits",)),
    ("memory", ("unique_ptr",)),
    ("type_traits", ("make_unsigned", "is_floating_point")),
)


def _launches(plan: Plan) -> list[LibraryStep | list[KernelStep]]:
    """Kernels up to the next library call are one function: a call costs more than a loop."""
    found: list[LibraryStep | list[KernelStep]] = []
    for step in plan.steps:
        if isinstance(step, LibraryStep):
            found.append(step)
        elif found and isinstance(found[-1], list):
            found[-1].append(step)
        else:
            found.append([step])
    return found


def _function(
    name: str, host: Host, steps: Sequence[KernelStep], reference: Reference
) -> NativeFunction:
    inputs: dict[str, Tensor] = {}
    outputs: dict[str, Tensor] = {}
    blocks = []
    for step in steps:
        loads = {t.name: t for n in step.loads if (t := host.memory.tensor(n)) is not None}
        inputs |= {n: t for n, t in loads.items() if n not in outputs}
        stored = host.outputs(step)
        outputs |= {t.name: t for t in stored}
        kernel = CppKernel(host.plan, step, host.memory, stored, host.names, reference.comment)
        blocks += kernel.lines()
        host.stored(step, stored)
    inputs = {n: t for n, t in inputs.items() if n not in outputs}
    tensors = [*inputs.values(), *outputs.values()]
    parameters = [(_pointer(t, const=t.name in inputs), t.name, t.name) for t in tensors]
    parameters += [
        ("int64_t", stride, f"{t.name}.stride({axis})")
        for t in tensors
        for axis, stride in t.passed_strides
    ]
    parameters += [("int64_t", size, size) for size in host.sizes.values()]
    text = "\n".join(blocks)
    kept = [p for p in parameters if "*" in p[0] or uses(text, p[1])]
    host.lines += call_lines(f"native.{name}", [argument for _, _, argument in kept])
    declared = [f"{c_type} {parameter}" for c_type, parameter, _ in kept]
    code = "\n".join(
        [*head_lines(f'extern "C" void {name}(', declared, end=") {"), *indented(blocks), "}", ""]
    )
    return NativeFunction(name, code, tuple(c_type for c_type, _, _ in kept))


def _pointer(tensor: Tensor, *, const: bool) -> str:
    c_type = cpp.POINTER.get(tensor.dtype)
    if c_type is None:
        raise EmitError(f"{tensor.name} is {tensor.dtype.value}, which C++ has no type for")
    return f"const {c_type}*" if const else f"{c_type}*"
