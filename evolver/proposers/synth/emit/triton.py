"""Row programs as Triton: a module with kernels and the entry that launches them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evolver.proposers.synth.emit import triton_text as tt
from evolver.proposers.synth.emit.call import call_lines, head_lines, indented, uses
from evolver.proposers.synth.emit.dispatch import Variant, entry
from evolver.proposers.synth.emit.host import Host
from evolver.proposers.synth.emit.memory import Tensor
from evolver.proposers.synth.emit.reference import Reference
from evolver.proposers.synth.emit.triton_kernel import Part, part_of
from evolver.proposers.synth.plan import KernelStep, LibraryStep, Plan


@dataclass(frozen=True)
class TritonProgram:
    """What one row program became: kernels, and the Python around them."""

    kernels: tuple[str, ...]
    body: tuple[str, ...]


def triton_module(variants: Sequence[Variant], reference: Reference) -> str:
    """Return a candidate for the ``triton`` backend.

    Raises:
        EmitError: something of a plan cannot be written in Triton.
    """
    programs = []
    for number, variant in enumerate(variants, 1):
        prefix = reference.function if len(variants) == 1 else f"{reference.function}_{number}"
        programs.append(triton_program(variant, reference, prefix))
    kernels = "\n\n".join(k for p in programs for k in p.kernels)
    helpers = tt.helpers_of(kernels)
    text = "\n\n".join([*helpers, kernels])
    imports = ["import torch", "import triton", "import triton.language as tl"]
    if "libdevice." in text:
        imports.append("from triton.language.extra import libdevice")
    function = entry(reference, [p.body for p in programs], variants)
    return "\n".join(imports) + f"\n\n\n{text}\n\n{function}\n"


def triton_program(variant: Variant, reference: Reference, prefix: str) -> TritonProgram:
    """Return the kernels of a variant, named after ``prefix``."""
    plan = variant.plan
    host = Host(plan, reference.names(), variant.group)
    kernels: list[str] = []
    for steps in _launches(plan):
        if isinstance(steps, LibraryStep):
            host.library(steps)
            continue
        name = f"{prefix}_kernel" if not kernels else f"{prefix}_kernel_{len(kernels) + 1}"
        kernels.append(_kernel(name, host, steps, reference))
    host.lines += host.returned()
    return TritonProgram(tuple(kernels), tuple(host.lines))


def _launches(plan: Plan) -> list[LibraryStep | list[KernelStep]]:
    """Each launch: the kernels that are joined in it."""
    found: list[LibraryStep | list[KernelStep]] = []
    for step in plan.steps:
        if isinstance(step, LibraryStep):
            found.append(step)
        elif step.genes.joined and found and isinstance(found[-1], list):
            found[-1].append(step)
        else:
            found.append([step])
    return found


def _kernel(name: str, host: Host, steps: Sequence[KernelStep], reference: Reference) -> str:
    names = host.names.copy()
    inputs: dict[str, Tensor] = {}
    outputs: dict[str, Tensor] = {}
    parts: list[Part] = []
    made = []
    for step in steps:
        inputs |= {t.name: t for n in step.loads if (t := host.memory.tensor(n)) is not None}
        stored = host.outputs(step)
        names = names.joined(host.names)
        outputs |= {t.name: t for t in stored}
        parts.append(part_of(host.plan, step, host.memory, stored, names, reference.comment))
        made.append((step, stored))
    for step, stored in made:
        host.stored(step, stored)
    tensors = [*{**inputs, **outputs}.values()]
    body = _body(parts)
    strides = [(s, f"{t.name}.stride({axis})") for t in tensors for axis, s in t.passed_strides]
    sizes = [(size, size) for size in host.sizes.values()]
    text = "\n".join(body)
    passed = [(n, v) for n, v in (*strides, *sizes) if uses(text, n)]
    constants = {n: v for part in parts for n, v in part.constants.items()}
    blocks = [
        (block, f"triton.next_power_of_2({host.size(extent)})")
        for block, extent in constants.items()
    ]
    declared = [*(t.name for t in tensors), *(n for n, _ in passed)]
    declared += [f"{n}: tl.constexpr" for n, _ in blocks]
    warps = max(step.genes.warps for step in steps)
    arguments = [*(t.name for t in tensors), *(v for _, v in passed)]
    arguments += [f"{n}={v}" for n, v in blocks]
    arguments += [f"num_warps={warps}"]
    programs = " + ".join(part.programs for part in parts)
    host.lines += call_lines(f"{name}[({programs},)]", arguments)
    head = head_lines(f"def {name}(", declared, end="):")
    return "\n".join(["@triton.jit", *head, *indented(body), ""])


def _body(parts: Sequence[Part]) -> list[str]:
    """The programs of one part after those of another."""
    if len(parts) == 1:
        return ["program = tl.program_id(0)", *parts[0].lines]
    lines = ["program = tl.program_id(0)"]
    for position, part in enumerate(parts):
        inner = indented(part.lines)
        if position < len(parts) - 1:
            count = self_count = f"programs_{position}"
            lines += [f"{count} = {part.programs_in_kernel}", f"if program < {self_count}:"]
            lines += [*inner, "else:"]
            rest = _body_rest(parts[position + 1 :], count, position + 1)
            return [*lines, *indented(rest)]
    return lines


def _body_rest(parts: Sequence[Part], before: str, position: int) -> list[str]:
    lines = [f"program -= {before}"]
    if len(parts) == 1:
        return [*lines, *parts[0].lines]
    count = f"programs_{position}"
    lines += [f"{count} = {parts[0].programs_in_kernel}", f"if program < {count}:"]
    lines += [*indented(parts[0].lines), "else:"]
    return [*lines, *indented(_body_rest(parts[1:], count, position + 1))]
