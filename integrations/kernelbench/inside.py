"""Looks at a KernelBench file from inside a sandbox: how it is constructed and called.

File descriptor 3 brings the file's text; one line of JSON leaves on 4: ``{"seen": ...}`` or
``{"failure": "..."}``. Tensors are told by their shape, their moments and a sample of their
elements; whether these are those of a known generator is decided outside.
"""

import inspect
import json
import os
import sys
import tempfile
import types
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import torch

from integrations.probe.facts import tensor_facts


def main() -> None:
    """Answer the one question."""
    with os.fdopen(3, "rb") as question, os.fdopen(4, "w") as answer:
        text = question.read().decode("utf-8")
        try:
            found: dict[str, object] = {"seen": look(text)}
        except BaseException as error:
            found = {"failure": f"{type(error).__name__}: {error}"[:1000]}
        answer.write(json.dumps(found))


def look(text: str) -> dict[str, object]:
    """Return what the file constructs, what it is called with, and the state it has then."""
    module = _imported(text)
    torch.manual_seed(0)
    constructor = module.get_init_inputs()
    torch.manual_seed(0)
    with torch.no_grad():
        model = module.Model(*_positional(constructor))
        inputs = module.get_inputs()
    names = list(inspect.signature(type(model).forward).parameters)[1:]
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    held = model.state_dict(keep_vars=True)
    return {
        "constructor": constructor if _is_json(constructor) else None,
        "constructor_told": _told(constructor),
        "argument_names": names,
        "inputs": [_value(value) for value in _positional(inputs)],
        "state": [
            {"name": name, "parameter": name in parameters, **tensor_facts(tensor.detach())}
            for name, tensor in held.items()
        ],
        "shares_state": len({t.data_ptr() for t in held.values() if t.numel()})
        < sum(1 for t in held.values() if t.numel()),
    }


def _imported(text: str) -> types.ModuleType:
    path = Path(tempfile.mkdtemp()) / "kernelbench_file.py"
    path.write_text(text, encoding="utf-8")
    spec = spec_from_file_location("kernelbench_file", path)
    if spec is None or spec.loader is None:
        raise ImportError("the file cannot be imported")
    module = module_from_spec(spec)
    sys.modules["kernelbench_file"] = module
    spec.loader.exec_module(module)
    return module


def _positional(values: object) -> list[object]:
    if not isinstance(values, (list, tuple)):
        raise TypeError(f"a {type(values).__name__} where a list of positional values is due")
    return list(values)


def _is_json(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_json, value))
    return value is None or isinstance(value, (bool, int, float, str))


def _told(value: object) -> str:
    return repr(value)[:200]


def _value(value: object) -> dict[str, object]:
    if isinstance(value, torch.Tensor):
        return tensor_facts(value.detach())
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"scalar": value}
    return {"other": type(value).__name__}


if __name__ == "__main__":
    main()
