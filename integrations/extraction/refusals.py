"""The sins that make a target unfit: what a rewritten kernel could not be judged against.

Random numbers, values that travel to the host, shapes that depend on data, communication
between ranks, coroutines and generators, and kernels that are already written in Triton.
Only code that will be in the reference counts: a dead branch is forgiven.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from integrations.extraction.closure import Closure, live_nodes
from integrations.extraction.construction import construction
from integrations.extraction.machines import last_name
from integrations.extraction.piece import Piece
from integrations.extraction.target import triton_decorator

_RANDOM_FUNCTIONS = frozenset(
    [
        "rand",
        "randn",
        "randint",
        "randperm",
        "rand_like",
        "randn_like",
        "randint_like",
        "multinomial",
        "bernoulli",
        "poisson",
        "normal",
        "rrelu",
        "alpha_dropout",
        "feature_dropout",
    ]
)
_RANDOM_METHODS = frozenset(
    [
        "multinomial",
        "bernoulli",
        "bernoulli_",
        "uniform_",
        "normal_",
        "random_",
        "exponential_",
        "geometric_",
        "cauchy_",
        "log_normal_",
    ]
)
_HOST_METHODS = frozenset({"item", "tolist", "cpu", "numpy"})
_SHAPE_FROM_DATA = frozenset(
    {"nonzero", "masked_select", "unique", "unique_consecutive", "argwhere", "nonzero_static"}
)
_COMMUNICATION = re.compile(
    r"(^|_)(all_reduce|all_gather|reduce_scatter|all_to_all)(_|$)|^(broadcast_tensor_dict|barrier)$"
)
_DROPOUTS = frozenset({"dropout", "dropout1d", "dropout2d", "dropout3d"})
_OPERATORS_OF_TORCH = ("torch.ops.aten.", "torch.ops.prims.", "torch.ops.higher_order.")


def find_refusals(closure: Closure) -> list[str]:
    """Return each reason to refuse, as ``file:line: reason``, in the order of the pieces."""
    reasons = list(closure.problems)
    for piece in closure.everything:
        reasons += [r for r in _signature(piece, closure) if r not in reasons]
        masks = _boolean_names(piece)
        passed = construction(piece.statement) if closure.constructed else frozenset()
        for node in live_nodes(piece):
            if node in passed:
                continue
            reason = _judge(node, masks)
            if reason is not None:
                line = getattr(node, "lineno", piece.statement.lineno)
                reasons.append(f"{piece.module.name}:{line}: {reason}")
    return reasons


def certain(reasons: list[str], closure: Closure) -> list[str]:
    """Return the reasons that no workloads can rule out.

    These are the ones that stand in the entry itself, outside any branch and before any
    branch that may leave the function.
    """
    entry = closure.entry
    where = {f"{entry.module.name}:{line}:" for line in _unconditional_lines(entry)}
    return [r for r in reasons if r.partition(" ")[0] in where]


def _unconditional_lines(piece: Piece) -> Iterator[int]:
    statement = piece.statement
    assert isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef))
    yield statement.lineno
    for child in statement.body:
        if any(isinstance(n, ast.Return) for n in ast.walk(child)) and hasattr(child, "body"):
            return
        pending: list[ast.AST] = [child]
        while pending:
            node = pending.pop()
            if isinstance(node, (ast.If, ast.IfExp, ast.BoolOp, ast.For, ast.While, ast.Try)):
                continue
            if hasattr(node, "lineno"):
                yield node.lineno
            pending.extend(ast.iter_child_nodes(node))


def _signature(piece: Piece, closure: Closure) -> Iterator[str]:
    statement = piece.statement
    where = f"{piece.module.name}:{statement.lineno}"
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        decorator = triton_decorator(statement)
        if decorator is None:
            for unknown in piece.edits.unknown:
                text = f"@{ast.unparse(unknown)} is not in the repository and may change the result"
                yield f"{piece.module.name}:{unknown.lineno}: {text}"
        else:
            yield f"{where}: {statement.name} is a Triton kernel already (@{decorator})"
    if piece is not closure.entry or not isinstance(statement, ast.FunctionDef):
        return
    arguments = statement.args
    if arguments.vararg or arguments.kwarg:
        yield f"{where}: {statement.name} takes *args or **kwargs; its inputs are not known"
    required = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    for argument, default in required:
        if default is None:
            yield f"{where}: {argument.arg} must be given by keyword, and candidates take positions"


def _judge(node: ast.AST, masks: set[str]) -> str | None:
    if isinstance(node, (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)):
        return "asynchronous code"
    if isinstance(node, (ast.Yield, ast.YieldFrom)):
        return "a generator: it does not return its result"
    if isinstance(node, ast.Global):
        return f"writes the module's global {', '.join(node.names)}"
    if isinstance(node, ast.Subscript) and _reads_by_mask(node, masks):
        return f"`{ast.unparse(node)}` selects by a mask: the result's shape depends on data"
    if isinstance(node, ast.Call):
        return _judge_call(node)
    return None


def _judge_call(call: ast.Call) -> str | None:
    text = " ".join(ast.unparse(call).split())[:80]
    name = last_name(call.func) or ""
    owner = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    if _is_random(name, owner, call):
        return f"random numbers: {text}"
    if text.startswith("torch.ops.") and not text.startswith(_OPERATORS_OF_TORCH):
        return f"an operator that the repository compiles: {text} (--machine cpu folds is_cuda)"
    if _COMMUNICATION.search(name) or owner.endswith("distributed"):
        return f"communication between ranks: {text}"
    if isinstance(call.func, ast.Attribute) and name in _HOST_METHODS and not call.args:
        return f"the host waits for the device: {text}"
    if name == "synchronize":
        return f"the host waits for the device: {text}"
    if name == "to" and any(isinstance(a, ast.Constant) and a.value == "cpu" for a in call.args):
        return f"the host waits for the device: {text}"
    if name in _SHAPE_FROM_DATA or (name == "where" and owner == "torch" and len(call.args) == 1):
        return f"the result's shape depends on data: {text}"
    return None


def _is_random(name: str, owner: str, call: ast.Call) -> bool:
    if name in _DROPOUTS:
        training = next((k.value for k in call.keywords if k.arg == "training"), None)
        return not (isinstance(training, ast.Constant) and training.value is False)
    if owner in ("random", "np.random", "numpy.random"):
        return True
    if owner == "torch" and name in _RANDOM_FUNCTIONS:
        return True
    return name in _RANDOM_METHODS and isinstance(call.func, ast.Attribute)


def _boolean_names(piece: Piece) -> set[str]:
    """Return the local names that only ever hold the result of a comparison."""
    held: dict[str, bool] = {}
    for node in live_nodes(piece):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                for name in ast.walk(target):
                    if isinstance(name, ast.Name):
                        is_mask = target is name and _is_mask(node.value, set())
                        held[name.id] = held.get(name.id, True) and is_mask
    return {name for name, always in held.items() if always}


def _reads_by_mask(node: ast.Subscript, masks: set[str]) -> bool:
    return isinstance(node.ctx, ast.Load) and _is_mask(node.slice, masks)


def _is_mask(node: ast.expr, masks: set[str]) -> bool:
    if isinstance(node, ast.Compare):
        scalar = (ast.Is, ast.IsNot, ast.In, ast.NotIn)
        return not any(isinstance(op, scalar) for op in node.ops)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        return True
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.BitAnd, ast.BitOr)):
        return _is_mask(node.left, masks) and _is_mask(node.right, masks)
    return isinstance(node, ast.Name) and node.id in masks
