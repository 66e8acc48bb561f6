"""The text of the kernel file: header, provenance, the candidate's code, loader and guard.

The file imports the standard library, torch and (for Triton) triton alone, so it cannot be
part of an import circle. What was measured is what is written: the candidate's statements
are copied unchanged but for its docstring and the place of its imports.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evaluator.candidate import BackendName, Candidate
from evaluator.evaluation import Evaluation
from evaluator.problem import Problem
from integrations.patch.errors import PatchError
from integrations.patch.guard import Case
from integrations.patch.provenance import provenance_lines

_LOADER = Path(__file__).parent / "runtime" / "native.py"
_OUR_NAMES = frozenset(
    {"can_use", "native", "NativeLibrary", "_PLAIN_TENSORS", "_compiled", "_bound", "_processor"}
)
_TEXT_WIDTH = 84


@dataclass(frozen=True)
class PythonParts:
    """A module's text, taken apart: docstring, top-level imports, everything else."""

    docstring: str
    imports: tuple[str, ...]
    rest: str


def take_apart(source: str) -> PythonParts:
    """Split ``source`` at its top level.

    Raises:
        SyntaxError: it is not Python.
    """
    tree = ast.parse(source)
    lines = source.splitlines()
    dropped: set[int] = set()
    imports: list[str] = []
    docstring = ast.get_docstring(tree) or ""
    for position, node in enumerate(tree.body):
        is_import = isinstance(node, ast.Import | ast.ImportFrom)
        if is_import:
            imports.append(ast.unparse(node))
        if is_import or (position == 0 and docstring):
            assert node.end_lineno is not None
            dropped.update(range(node.lineno - 1, node.end_lineno))
    rest = "\n".join(line for number, line in enumerate(lines) if number not in dropped)
    return PythonParts(docstring, tuple(imports), rest.strip("\n"))


def render_kernel_file(
    problem: Problem,
    candidate: Candidate,
    evaluation: Evaluation,
    cases: Sequence[Case],
    *,
    header: tuple[str, ...],
) -> str:
    """Return the kernel file's text, with ``\\n`` newlines.

    Raises:
        PatchError: the candidate defines a name that the guard or the loader needs.
    """
    if candidate.backend not in _ON_DEVICE:
        raise PatchError(
            f"{candidate.backend} candidates cannot be put into a repository yet; "
            f"those of {' and '.join(_ON_DEVICE)} can"
        )
    parts = take_apart(candidate.source)
    _refuse_clashes(candidate)
    compiled = candidate.backend is BackendName.CPP
    loader = take_apart(_LOADER.read_text(encoding="utf-8")) if compiled else None
    docstring = _docstring(problem, candidate, evaluation, parts.docstring)
    imports = _imports(parts.imports, loader.imports if loader else ())
    sections = ["\n".join((*header, docstring)), imports, parts.rest]
    if loader:
        sections += [loader.rest, "native = NativeLibrary(SOURCE, SIGNATURES)"]
    sections.append(_guard(problem, cases, candidate.backend))
    first, second, *others = sections
    return f"{first}\n\n{second}\n\n" + "\n\n\n".join(others) + "\n"


def _refuse_clashes(candidate: Candidate) -> None:
    tree = ast.parse(candidate.source)
    stored = {
        n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    defined = {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    taken = sorted((stored | defined) & _OUR_NAMES)
    if taken:
        raise PatchError(f"the candidate defines {taken}, names that the kernel file needs")


def _docstring(
    problem: Problem, candidate: Candidate, evaluation: Evaluation, original: str
) -> str:
    path, _, qualname = problem.origin.target.rpartition("::")
    lines = [f'"""Fused ``{qualname}`` of ``{path}``.', ""]
    if candidate.backend is BackendName.CPP:
        lines += _wrapped(
            "The C++ below is compiled at its first use with the system's g++ into a cache folder "
            "of the user's and bound through ctypes. Without a compiler, can_use() is False and "
            "the caller keeps its own path."
        )
    else:
        lines += _wrapped("Triton kernels; launch settings are those that were measured.")
    lines += [
        "",
        *[w for line in provenance_lines(problem, candidate, evaluation) for w in _wrapped(line)],
    ]
    if original:
        lines += ["", *original.replace("\\", "\\\\").replace('"""', "'''").splitlines()]
    return "\n".join((*lines, '"""'))


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _TEXT_WIDTH, subsequent_indent="  " if text.startswith("- ") else "")


def _imports(of_candidate: tuple[str, ...], of_loader: tuple[str, ...]) -> str:
    """Future imports, then the standard library, then torch and triton."""
    lines = dict.fromkeys((*of_loader, *of_candidate, "import torch"))
    groups: tuple[list[str], list[str], list[str]] = ([], [], [])
    for line in lines:
        root = line.split()[1].split(".")[0]
        groups[0 if root == "__future__" else 2 if root in ("torch", "triton") else 1].append(line)
    ordered = [sorted(group, key=lambda line: (line.startswith("from"), line)) for group in groups]
    return "\n\n".join("\n".join(group) for group in ordered if group)


def _guard(problem: Problem, cases: Sequence[Case], backend: BackendName) -> str:
    parameters = ", ".join(problem.parameters)
    blocks = ["_PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter)"]
    blocks += [_case_function(case, parameters, backend) for case in cases]
    blocks.append(_can_use(problem, cases, backend, parameters))
    return "\n\n\n".join(blocks)


def _case_function(case: Case, parameters: str, backend: BackendName) -> str:
    names = ", ".join(w.name for w in case.workloads)
    title = textwrap.shorten(f"Like the tested inputs {names}.", _TEXT_WIDTH, placeholder=" ...")
    devices = [_ON_DEVICE[backend].format(name) for name in case.workloads[0].tensors]
    conditions = "\n        and ".join((*case.conditions, *devices))
    return (
        f'def {case.name}({parameters}):\n    """{title}"""\n'
        f"    return (\n        {conditions}\n    )"
    )


def _can_use(problem: Problem, cases: Sequence[Case], backend: BackendName, parameters: str) -> str:
    workloads = [w for case in cases for w in case.workloads]
    tensors = [p for p in problem.parameters if any(p in w.tensors for w in workloads)]
    if not tensors:
        raise PatchError("the target takes no tensor, so no guard can tell where it runs")
    optional = [t for t in tensors if not all(t in w.tensors for w in workloads)]
    needs = [
        f"({t} is not None and {t}.requires_grad)" if t in optional else f"{t}.requires_grad"
        for t in tensors
    ]
    fits = " or ".join(f"{case.name}({parameters})" for case in cases)
    if len(cases) > 1:
        fits = f"(\n        {fits}\n    )".replace(" or ", "\n        or ")
    return _CAN_USE.format(
        parameters=parameters,
        fits=fits,
        device="cpu" if backend is BackendName.CPP else "cuda",
        gradients="\n        or ".join(needs),
        ready=_READY[backend],
    )


# Called before every use of the kernel, between other kernels and so with cold caches: it
# makes no device object and no loop.
_CAN_USE = '''\
def can_use({parameters}):
    """Whether the kernel was tested for such arguments; the caller keeps its own path if not."""
    if torch.compiler.is_compiling() or not {fits}:
        return False
    if torch.is_autocast_enabled("{device}") or torch.jit.is_tracing():
        return False
    if torch.is_grad_enabled() and (
        {gradients}
    ):
        return False
    return {ready}'''

_ON_DEVICE = {
    BackendName.CPP: "{}.is_cpu",
    # Triton launches on the current device, whatever the device of its arguments.
    BackendName.TRITON: "{0}.is_cuda and {0}.get_device() == torch.cuda.current_device()",
}
_READY = {
    BackendName.CPP: "native.ready()",
    # ROCm calls itself "cuda" too, but nothing was tested there.
    BackendName.TRITON: "torch.version.hip is None",
}
