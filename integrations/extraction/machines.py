"""What a machine of a given kind would answer to the questions that engines ask at import.

``is_cuda()``, ``get_bool_env_var("X", "false")``, ``get_tensor_model_parallel_world_size()``:
extraction answers for the machine that the kernel is meant for, with no variable set and a
single rank, and records each answer as an assumption.
"""

from __future__ import annotations

import ast
import re
from enum import StrEnum


class Machine(StrEnum):
    """The kind of machine that platform questions are answered for."""

    CUDA = "cuda"
    CPU = "cpu"


_TRUE_ON = {
    "is_cuda": {Machine.CUDA},
    "is_cuda_alike": {Machine.CUDA},
    "is_nvidia": {Machine.CUDA},
    "is_cpu": {Machine.CPU},
}
_NEVER = frozenset(
    [
        "is_hip",
        "is_rocm",
        "is_amd",
        "is_npu",
        "is_xpu",
        "is_musa",
        "is_mps",
        "is_hpu",
        "is_tpu",
        "is_neuron",
        "is_sail",
        "is_maca",
        "is_ascend",
        "is_out_of_tree",
        "cpu_has_amx_support",
        "is_gfx95_supported",
        "is_gfx1250_supported",
        "is_dp_attention_enabled",
    ]
)
_SINGLE_RANK = {
    "get_tensor_model_parallel_world_size": 1,
    "get_tensor_model_parallel_rank": 0,
    "get_attention_tp_size": 1,
    "get_attention_tp_rank": 0,
}
_RANK_ATTRIBUTES = {
    "tp_size": 1,
    "tp_rank": 0,
    "attn_tp_size": 1,
    "attn_tp_rank": 0,
    "world_size": 1,
    "rank_in_group": 0,
}
_PARALLEL = re.compile(r"^get_(\w+_)?(parallel|group|tp|context)$")
_ENVIRONMENT = re.compile(r"^(get_)?(bool_|int_|str_)?env(_var|_to_\w+)?$|^getenv$|^env_to_\w+$")
_TEXT_TO_BOOL = {"true": True, "1": True, "false": False, "0": False}


def answer(call: ast.Call, machine: Machine) -> tuple[bool, object]:
    """Return (known, value) of a call that asks about the platform or the environment."""
    name = last_name(call.func)
    if name is None:
        return False, None
    if not call.args and not call.keywords:
        return _platform_answer(name, machine)
    if _ENVIRONMENT.match(name) or _is_environ_get(call.func):
        return _environment_answer(name, call)
    return False, None


def rank_answer(call: ast.Call, attribute: str) -> tuple[bool, object]:
    """Return (known, value) of ``get_parallel().tp_size`` and its kin: there is one rank."""
    asks = not call.args and bool(_PARALLEL.match(last_name(call.func) or ""))
    return asks and attribute in _RANK_ATTRIBUTES, _RANK_ATTRIBUTES.get(attribute)


def last_name(function: ast.expr) -> str | None:
    """Return ``f`` of ``f`` and of ``a.b.f``."""
    if isinstance(function, ast.Name):
        return function.id
    return function.attr if isinstance(function, ast.Attribute) else None


def _platform_answer(name: str, machine: Machine) -> tuple[bool, object]:
    if name in _NEVER:
        return True, False
    if name in _TRUE_ON:
        return True, machine in _TRUE_ON[name]
    return name in _SINGLE_RANK, _SINGLE_RANK.get(name)


def _is_environ_get(function: ast.expr) -> bool:
    is_get = isinstance(function, ast.Attribute) and function.attr == "get"
    return is_get and ast.unparse(function).endswith("environ.get")


def _environment_answer(name: str, call: ast.Call) -> tuple[bool, object]:
    """Return the default of an environment variable, as if it were not set."""
    given = [k.value for k in call.keywords if k.arg == "default"] or call.args[1:2]
    if not given:
        return True, False if "bool" in name else None
    if not isinstance(given[0], ast.Constant):
        return False, None
    default = given[0].value
    if "bool" in name and isinstance(default, str):
        return default.lower() in _TEXT_TO_BOOL, _TEXT_TO_BOOL.get(default.lower())
    return True, default
