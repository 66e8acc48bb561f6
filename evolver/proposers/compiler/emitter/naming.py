"""Readable names: of kernels, of their arguments, of index variables and of temporaries."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable, Mapping

_GENERIC = frozenset({"to", "copy", "view", "expand", "unsqueeze", "clone", "slice", "empty"})
_NOISE = re.compile(r"prepare_softmax_online|_to_copy|lift_fresh|scalar_tensor|_unsafe|_like")
_LONGEST_NAME = 40

_OPERATOR_WORDS: Mapping[type, str] = {
    ast.Add: "total",
    ast.Sub: "diff",
    ast.Mult: "prod",
    ast.Div: "ratio",
    ast.FloorDiv: "quotient",
    ast.Mod: "remainder",
    ast.BitAnd: "both",
    ast.BitOr: "either",
}
_CALL_WORDS = {
    "tl.where": "selected",
    "tl.sum": "row_sum",
    "tl.max": "row_max",
    "tl.min": "row_min",
    "tl.sigmoid": "gate",
    "nan_max": "row_max",
    "nan_min": "row_min",
    "any_true": "any_true_in_row",
    "argmax_pair": "best",
    "argmin_pair": "best",
    "tl.full": "acc",
    "tl.zeros": "acc",
    "tl.broadcast_to": "wide",
}


def kernel_name(inductor_name: str) -> str:
    """``triton_poi_fused__to_copy_add_mul_0`` as ``add_mul_kernel``: what was fused."""
    words = re.sub(r"^triton_[a-z]+_(fused_)?", "", inductor_name)
    words = re.sub(r"_?\d+$", "", _NOISE.sub("", words))
    parts = [p for p in words.split("_") if p and p not in _GENERIC]
    name = ""
    for part in dict.fromkeys(parts):
        if len(name) + len(part) + 1 > _LONGEST_NAME:
            break
        name = f"{name}_{part}" if name else part
    if not name or name[0].isdigit():
        name = "copy" if not name else f"op_{name}"
    return f"{name}_kernel"


class Names:
    """Hands out names that are not taken yet."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)

    def unique(self, wanted: str) -> str:
        """``wanted``, or ``wanted_1`` and so on."""
        name, count = wanted, 0
        while name in self._taken:
            count += 1
            name = f"{wanted}_{count}"
        self._taken.add(name)
        return name


def rename(node: ast.AST, mapping: Mapping[str, str]) -> None:
    """Rename variables and arguments throughout ``node``, in place."""
    for child in ast.walk(node):
        if isinstance(child, ast.Name) and child.id in mapping:
            child.id = mapping[child.id]
        elif isinstance(child, ast.arg) and child.arg in mapping:
            child.arg = mapping[child.arg]


def name_temporaries(function: ast.FunctionDef) -> None:
    """Rename Inductor's index variables and ``tmp7`` to words, in place."""
    names = Names(_reserved(function))
    bases = _dimension_words(function)
    mapping = {
        a.arg: names.unique(w) for a in function.args.args if (w := _size_word(a.arg, bases))
    }
    for statement in _in_order(function.body):
        for target in _targets(statement):
            if target in mapping or any(a.arg == target for a in function.args.args):
                continue
            word = _word(target, statement, bases)
            if word is not None:
                mapping[target] = names.unique(word)
    rename(function, mapping)


def _size_word(argument: str, bases: Mapping[str, str]) -> str | None:
    """``xnumel`` as ``row_numel``."""
    block = re.fullmatch(r"(x|y|z|r\d_)numel", argument)
    return f"{bases.get(block[1], block[1].rstrip('_'))}_numel" if block else None


def _reserved(function: ast.FunctionDef) -> set[str]:
    """Arguments, and names of the module that the body reads; a temporary may hide neither."""
    variables = [n for n in ast.walk(function) if isinstance(n, ast.Name)]
    stored = {n.id for n in variables if isinstance(n.ctx, ast.Store)}
    read = {n.id for n in variables} - stored
    return read | {a.arg for a in function.args.args} | set(dir(builtins))


def _dimension_words(function: ast.FunctionDef) -> dict[str, str]:
    text = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)}
    reduces = any(t.startswith("r0_") for t in text)
    if reduces:
        return {"x": "row", "y": "outer", "z": "batch", "r0_": "col", "r1_": "inner"}
    if "yindex" in text:
        return {"x": "col", "y": "row", "z": "batch"}
    return {"x": "index"}


def _in_order(body: list[ast.stmt]) -> Iterable[ast.stmt]:
    for statement in body:
        yield statement
        if isinstance(statement, ast.For | ast.If | ast.While):
            yield from _in_order(statement.body)


def _targets(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.Assign):
        nodes: list[ast.expr] = list(statement.targets)
    elif isinstance(statement, ast.AnnAssign | ast.For):
        nodes = [statement.target]
    else:
        return []
    return [n.id for t in nodes for n in ast.walk(t) if isinstance(n, ast.Name)]


def _word(target: str, statement: ast.stmt, bases: Mapping[str, str]) -> str | None:
    block = re.fullmatch(r"(x|y|z|r\d_)(index|mask|base|offset|numel)", target)
    if block:
        base = bases.get(block[1], block[1].rstrip("_"))
        suffix = {"index": "", "offset": "_start"}.get(block[2], f"_{block[2]}")
        return base + suffix
    value = getattr(statement, "value", None)
    if re.fullmatch(r"[xyz]\d+|r\d_\d+", target):
        return _index_word(value, bases) if isinstance(value, ast.expr) else None
    part = re.fullmatch(r"_?tmp\d+_(\w+)", target)
    if part:
        return _PART_WORDS.get(part[1], part[1])
    if re.fullmatch(r"_tmp\d+", target):
        return "acc"
    if re.fullmatch(r"tmp\d+", target) and isinstance(value, ast.expr):
        return _value_word(value)
    return None


def _index_word(value: ast.expr, bases: Mapping[str, str]) -> str | None:
    """``(xindex // 512) % 8`` as ``index_div_512_mod_8``."""
    if isinstance(value, ast.Name):
        block = re.fullmatch(r"(x|y|z|r\d_)index", value.id)
        return bases.get(block[1], block[1].rstrip("_")) if block else value.id
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.FloorDiv | ast.Mod):
        inner = _index_word(value.left, bases)
        divisor = re.sub(r"\W+", "_", ast.unparse(value.right)).strip("_")
        verb = "div" if isinstance(value.op, ast.FloorDiv) else "mod"
        return f"{inner}_{verb}_{divisor}" if inner else None
    return None


def _value_word(value: ast.expr) -> str:
    if isinstance(value, ast.BinOp):
        return _OPERATOR_WORDS.get(type(value.op), "value")
    if isinstance(value, ast.Compare):
        return "is_" + _COMPARISONS.get(type(value.ops[0]), "so")
    if isinstance(value, ast.Subscript):
        return _value_word(value.value)
    if isinstance(value, ast.UnaryOp):
        return "negated"
    return _call_word(value) if isinstance(value, ast.Call) else "value"


_PART_WORDS = {
    "max": "running_max",
    "sum": "running_sum",
    "m2": "squares",
    "max_next": "next_max",
    "sum_next": "next_sum",
    "val": "best_value",
    "idx": "best_index",
}
"""The accumulators that Inductor names after their role."""

_COMPARISONS: Mapping[type, str] = {
    ast.Lt: "below",
    ast.LtE: "at_most",
    ast.Gt: "above",
    ast.GtE: "at_least",
    ast.Eq: "equal",
    ast.NotEq: "different",
}


def _call_word(value: ast.Call) -> str:
    name = ast.unparse(value.func)
    if name == "tl.load":
        return _pointer_word(value.args[0])
    if isinstance(value.func, ast.Attribute) and value.func.attr in ("to", "broadcast_to"):
        inner = _value_word(value.func.value)
        return inner if inner != "value" else "cast"
    if name in _CALL_WORDS:
        return _CALL_WORDS[name]
    last = name.rsplit(".", 1)[-1]
    return last if last.isidentifier() and last != name else "value"


def _pointer_word(address: ast.expr) -> str:
    for node in ast.walk(address):
        if isinstance(node, ast.Name) and "ptr" in node.id:
            word = re.sub(r"_?ptr(\d*)$", r"\1", node.id)
            return f"{word}_value" if word in ("in", "out", "in_out") else word
    return "loaded"
