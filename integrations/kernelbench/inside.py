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

_SAMPLE = 4096


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
            {"name": name, "parameter": name in parameters, **_tensor(tensor.detach())}
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
        return _tensor(value.detach())
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"scalar": value}
    return {"other": type(value).__name__}


def _tensor(tensor: torch.Tensor) -> dict[str, object]:
    """Facts of one tensor; the moments are those of its finite elements' sample."""
    facts: dict[str, object] = {
        "shape": list(tensor.shape),
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "strides": None if tensor.is_contiguous() else list(tensor.stride()),
        "device": tensor.device.type,
        "plain": type(tensor) in (torch.Tensor, torch.nn.Parameter) and not tensor.is_complex(),
    }
    if facts["plain"] and tensor.numel() and tensor.layout == torch.strided:
        facts |= _content(tensor)
    return facts


def _content(tensor: torch.Tensor) -> dict[str, object]:
    flat = tensor.reshape(-1)
    low, high = (float(x) for x in flat.aminmax()) if flat.dtype != torch.bool else (0.0, 1.0)
    head = flat[:_SAMPLE].double()
    whole = flat.numel() <= _SAMPLE
    drawn = head if whole else flat[torch.randint(flat.numel(), (_SAMPLE,))].double()
    return {
        "low": low if torch.isfinite(torch.tensor(low)) else 0.0,
        "high": high if torch.isfinite(torch.tensor(high)) else 0.0,
        "finite": bool(torch.isfinite(drawn).all()),
        "sample": drawn.nan_to_num().tolist(),
        "ascends": flat.numel() > 2 and bool((head[1:] > head[:-1]).all()),
        "row_sums": _row_sums(tensor),
    }


def _row_sums(tensor: torch.Tensor) -> list[float]:
    """Sums over the last dimension of up to 64 rows; equal ones tell of a normalisation."""
    if tensor.ndim < 2 or tensor.shape[-1] < 2:
        return []
    rows = tensor.reshape(-1, tensor.shape[-1])[:64]
    return [float(x) for x in rows.double().sum(-1).nan_to_num()]


if __name__ == "__main__":
    main()
