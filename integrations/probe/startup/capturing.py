"""Watches the calls of one function in any Python command, and tells what it was called with.

The hook is a decorator, written into the syntax tree of the function's file while Python imports
it, innermost: whatever name the function goes by, and whatever is wrapped around it, its calls
pass here. Nothing on disk changes, and no failure here reaches the command.

What is told of a call is its form (shapes, types, strides, scalars), how its tensors overlap,
which of them it wrote (hashed before and after), and of the first call of each form the moments
and a sample of every tensor, small integer tensors whole. Of strings only those are told that
stand in the function's own file; of other objects the type alone.

``KSMITH_CAPTURE`` holds JSON: ``out`` (folder for PID.json), ``target``, ``method`` (whether the
first argument is ``self``), ``state`` (attributes of ``self`` to tell), ``constructor`` (whether
to tell how ``self`` was made, and all its parameters and buffers).
"""

from __future__ import annotations

import ast
import atexit
import builtins
import functools
import hashlib
import importlib.util
import inspect
import json
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

_HERE = Path(__file__).resolve().parent
_WATCH, _MADE = "__ksmith_watch__", "__ksmith_made__"
_MOST_FORMS = 256
_LOOKS = 3
"""Calls of one form whose arguments are hashed."""
_SAMPLE = 1024
_SMALL = 1024
"""Elements up to which an integer tensor is told whole."""
_MOST_TOLD = 200_000
"""Sampled elements of all tensors together."""
_MOST_STATE = 256
"""Parameters and buffers of one module; what has more is told without them."""
_MISSING, _SEVERAL = object(), object()
_UNTOLD = {_MISSING: "nothing", _SEVERAL: "variadic argument"}


class Capture:
    """One process's watch over the target."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._path, _, qualname = settings["target"].partition("::")
        self._parts = qualname.split(".")
        self._texts: set[str] = set()
        self._elsewhere: str | None = None
        self._error: str | None = None
        self._made: weakref.WeakKeyDictionary[Any, dict[str, Any]] = weakref.WeakKeyDictionary()
        self._local = threading.local()
        self._begin()

    def _begin(self) -> None:
        """Start counting; a forked process starts anew."""
        self._forms: dict[str, dict[str, Any]] = {}
        self._calls = self._nested = self._beyond = self._told = 0
        self._lock = threading.RLock()

    def places(self) -> dict[str, Callable[[ModuleSpec], None]]:
        """What to do with the spec of which file, by the end of its path."""
        if self._is_script():
            atexit.register(self.close)
        tail = "/".join(self._path.split("/")[-2:])  # comes second: the first that fits is taken
        found: dict[str, Callable[[ModuleSpec], None]] = {self._path: self._prepare}
        found.setdefault(tail, self._prepare_elsewhere)
        return found

    def _is_script(self) -> bool:
        """Whether the target's file is run rather than imported, so that no hook gets into it."""
        words = sys.orig_argv[1:]
        script = next((w for w in words if not w.startswith("-")), "")
        return "-m" not in words and f"/{os.path.abspath(script)}".endswith(f"/{self._path}")

    def _prepare_elsewhere(self, spec: ModuleSpec) -> None:
        self._elsewhere = spec.origin
        atexit.register(self.close)

    def _prepare(self, spec: ModuleSpec) -> None:
        loader: Any = spec.loader
        path = spec.origin
        if path is None or not hasattr(loader, "get_data"):
            return
        loader.get_code = lambda _: self._code(loader.get_data(path), path)
        atexit.register(self.close)
        os.register_at_fork(after_in_child=self._begin)
        vars(builtins).update({_WATCH: self.watch, _MADE: self.made})

    def _code(self, source: bytes, path: str) -> CodeType:
        """The file's code, with the hooks in it."""
        tree = ast.parse(source, path)
        constants = (n.value for n in ast.walk(tree) if isinstance(n, ast.Constant))
        self._texts = {c for c in constants if isinstance(c, str)}
        hooks = [(self._parts, _WATCH)]
        if self._settings["constructor"]:
            hooks.append(([*self._parts[:-1], "__init__"], _MADE))
        for parts, hook in hooks:
            for node in _definitions(tree.body, parts):
                node.decorator_list.append(
                    ast.Name(
                        hook, ast.Load(), lineno=node.lineno, col_offset=node.col_offset,
                        end_lineno=node.lineno, end_col_offset=node.col_offset,
                    )
                )  # fmt: skip
        return compile(tree, path, "exec", dont_inherit=True)

    def made(self, init: Callable[..., None]) -> Callable[..., None]:
        """Return ``__init__`` as one whose arguments are remembered."""
        signature = inspect.signature(init)

        @functools.wraps(init)
        def initialised(*args: Any, **kwargs: Any) -> None:
            init(*args, **kwargs)
            self._guarded(note, args, kwargs)

        def note(args: Any, kwargs: Any) -> None:
            instance, *given = list(signature.bind(*args, **kwargs).arguments.items())
            self._made[instance[1]] = {name: self._plain(value) for name, value in given}

        return initialised

    def watch(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``function`` as one whose outermost calls are told of."""
        signature, compiling = inspect.signature(function), _compiling

        def watched(*args: Any, **kwargs: Any) -> Any:
            if getattr(self._local, "inside", False) or compiling():
                self._nested += 1
                return function(*args, **kwargs)
            self._local.inside = True
            try:
                look = self._guarded(self._before, signature, args, kwargs)
                try:
                    result = function(*args, **kwargs)
                except BaseException as error:
                    self._guarded(self._failed, look, error)
                    raise
                self._guarded(self._after, look, result)
                return result
            finally:
                self._local.inside = False
                if self._calls & (self._calls - 1) == 0:  # what is killed has told so much
                    self._guarded(self.close)

        # In the function's own globals, where decorators look up what its annotations name.
        there = FunctionType(watched.__code__, function.__globals__, closure=watched.__closure__)
        return functools.wraps(function)(there)

    def _guarded(self, act: Callable[..., Any], *values: Any) -> Any:
        try:
            torch = sys.modules.get("torch")
            if torch is None:
                return act(*values)
            with torch.no_grad():
                return act(*values)
        except Exception as error:
            self._error = self._error or f"{type(error).__name__}: {error}"[:500]
            return None

    def _before(self, signature: inspect.Signature, args: Any, kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            return None  # the function will say so itself
        bound.apply_defaults()
        entries, instance = self._entries(signature, bound.arguments)
        tensors = dict(_tensors(entries))
        told = {name: self._describe(value) for name, value in entries.items()}
        constructor = self._constructor(instance)
        overlaps = _sibling("sharing").overlaps(tensors) if tensors else {}
        key = json.dumps([told, constructor, overlaps])
        with self._lock:
            self._count()
            form = self._forms.get(key)
            if form is None and len(self._forms) >= _MOST_FORMS:
                self._beyond += 1
                return None
            readable = (form is None or form["calls"] < _LOOKS) and not _capturing_graph()
            is_new = form is None
            if form is None:
                form = self._forms[key] = {
                    "key": hashlib.sha256(key.encode()).hexdigest(), "calls": 0, "raised": {},
                    "values": told, "constructor": constructor, "overlaps": overlaps,
                    "writes": [], "unread": [], "returns": [],
                    "grad": any(
                        t.requires_grad and not _told_of(told, n)["parameter"]
                        for n, t in tensors.items()
                    ),
                }  # fmt: skip
            form["calls"] += 1
            if is_new and tensors and readable:
                self._add_facts(form, tensors)
        before = _sibling("sharing").Before(tensors) if tensors and readable else None
        return form, tensors, before

    def _count(self) -> None:
        self._calls += 1
        if self._calls == 1 and "multiprocessing.util" in sys.modules:
            # A forked worker ends without atexit, but with these.
            sys.modules["multiprocessing.util"].Finalize(None, self.close, exitpriority=100)

    def _entries(
        self, signature: inspect.Signature, arguments: dict[str, Any]
    ) -> tuple[dict[str, Any], Any]:
        """Arguments and state by name, and ``self``."""
        entries: dict[str, Any] = {}
        for name, value in arguments.items():
            several = signature.parameters[name].kind in (
                inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD,
            )  # fmt: skip
            if not several or value:
                entries[name] = _SEVERAL if several else value
        if not self._settings["method"]:
            return entries, None
        instance = entries.pop(next(iter(entries)))
        state = {n: getattr(instance, n, _MISSING) for n in self._settings["state"]}
        if self._settings["constructor"] and hasattr(instance, "state_dict"):
            state = instance.state_dict(keep_vars=True)
            state = state if len(state) <= _MOST_STATE else {}
        return entries | {f"self.{name}": value for name, value in state.items()}, instance

    def _constructor(self, instance: Any) -> dict[str, Any] | None:
        return self._made.get(instance) if self._settings["constructor"] else None

    def _plain(self, value: Any) -> dict[str, Any]:
        """A constructor's argument: plain data, or the type's name."""
        try:
            return {"value": self._data(value)}
        except ValueError:
            return {"other": type(value).__name__}

    def _data(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [self._data(v) for v in value]
        if self._is_scalar(value):
            return value
        raise ValueError

    def _is_scalar(self, value: Any) -> bool:
        text = type(value) is str and value in self._texts
        return value is None or type(value) in (bool, int, float) or text

    def _describe(self, value: Any) -> dict[str, Any]:
        """The form of one value, without reading an element."""
        if self._is_scalar(value):
            return {"scalar": value}
        if _is_plain(value):
            return {"tensor": self._layout(value)}
        if isinstance(value, (list, tuple)) and value and all(map(_is_plain, value)):
            return {"list": [self._layout(member) for member in value]}
        known = value is _MISSING or value is _SEVERAL
        return {"other": _UNTOLD[value] if known else type(value).__name__}

    def _layout(self, tensor: Any) -> dict[str, Any]:
        layout: dict[str, Any] = _sibling("facts").layout_facts(tensor)
        return layout | {"parameter": isinstance(tensor, sys.modules["torch"].nn.Parameter)}

    def _add_facts(self, form: dict[str, Any], tensors: dict[str, Any]) -> None:
        torch = sys.modules["torch"]
        generator = torch.Generator().manual_seed(0)
        for name, tensor in tensors.items():
            size = min(tensor.numel(), _SAMPLE)
            if tensor.device.type == "meta" or self._told + size > _MOST_TOLD:
                continue
            self._told += size
            facts = _sibling("facts").tensor_facts(tensor.detach(), generator, _SAMPLE)
            facts["sample"] = [float(f"{x:.7g}") for x in facts.get("sample", [])]
            if not tensor.is_floating_point() and 0 < tensor.numel() <= _SMALL:
                facts["data"] = [int(x) for x in tensor.reshape(-1).tolist()]
            _told_of(form["values"], name).update(facts)

    def _after(self, look: Any, result: Any) -> None:
        if look is None:
            return
        form, tensors, before = look
        if before is None:
            return
        with self._lock:
            form["writes"] = sorted({*form["writes"], *before.written()})
            form["unread"] = sorted({*form["unread"], *before.unread()})
            form["returns"] = _sibling("sharing").owners(result, tensors)

    def _failed(self, look: Any, error: BaseException) -> None:
        if look is not None:
            raised, name = look[0]["raised"], type(error).__name__
            raised[name] = raised.get(name, 0) + 1

    def close(self) -> None:
        """Write what was seen so far."""
        with self._lock:
            found = {
                "pid": os.getpid(), "argv": [Path(sys.argv[0]).name] if sys.argv else [],
                "calls": self._calls, "nested": self._nested, "beyond": self._beyond,
                "script": self._is_script(), "elsewhere": self._elsewhere, "error": self._error,
                "forms": list(self._forms.values()),
            }  # fmt: skip
            path = Path(self._settings["out"]) / f"{os.getpid()}.json"
            part = path.with_suffix(".part")
            part.write_text(json.dumps(found))
            part.replace(path)


def _definitions(body: list[Any], parts: list[str]) -> Iterator[ast.FunctionDef]:
    """Every definition of a qualified name, those under ``if`` and ``try`` too."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            if node.name == parts[0] and len(parts) > 1:
                yield from _definitions(node.body, parts[1:])
        elif isinstance(node, ast.FunctionDef):
            if parts == [node.name]:
                yield node
        else:
            for inner in ("body", "handlers", "orelse", "finalbody"):
                held = getattr(node, inner, [])
                yield from _definitions(held if isinstance(held, list) else [], parts)


def _compiling() -> bool:
    compiler = getattr(sys.modules.get("torch"), "compiler", None)
    return compiler is not None and bool(compiler.is_compiling())


def _capturing_graph() -> bool:
    cuda = sys.modules["torch"].cuda if "torch" in sys.modules else None
    return bool(cuda and cuda.is_initialized() and cuda.is_current_stream_capturing())


@functools.cache
def _sibling(name: str) -> ModuleType:
    """A file of the folder above; these need torch, so not before torch is there."""
    spec = importlib.util.spec_from_file_location(f"_ksmith_{name}", _HERE.parent / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _is_plain(value: Any) -> bool:
    return "torch" in sys.modules and bool(_sibling("sharing").is_plain(value))


def _tensors(entries: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every tensor by name; the members of a list as ``name_0``, ``name_1``, …"""
    for name, value in entries.items():
        if _is_plain(value):
            yield name, value
        elif isinstance(value, (list, tuple)) and all(map(_is_plain, value)):
            yield from ((f"{name}_{i}", member) for i, member in enumerate(value))


def _told_of(values: dict[str, Any], name: str) -> dict[str, Any]:
    base, _, number = name.rpartition("_")
    in_list = "tensor" not in values.get(name, {})
    told: dict[str, Any] = values[base]["list"][int(number)] if in_list else values[name]["tensor"]
    return told
