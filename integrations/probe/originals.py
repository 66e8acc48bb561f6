"""Imports a function of a repository as it is, with stand-ins for packages that are not here.

An engine's module asks for dozens of packages before it defines a function that needs torch
alone. ``stand_in`` adds a finder behind all others: what nobody else finds becomes a module
whose every member is a ``StandIn``, which takes part in definitions (decorators, base classes,
annotations, constants) and in nothing else: code that computes with one fails. Only the
repository's own imports are helped so; what installed packages find optional stays missing, and
so does what ``find_spec`` is asked about. A module of the repository that fails on the way keeps
what it had defined, and stand-ins for the rest; the target itself must have been defined. Runs
inside a sandbox only, since it imports the repository.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import FrameType, ModuleType
from typing import Any

import torch

MISSING: list[str] = []
"""Modules that were stood in for, in the order asked for."""
_ROOTS: list[str] = []
"""Folders whose files are the repository's."""
_PROTOCOLS = ("__torch", "__array", "__cuda", "__dlpack")
"""What C code asks for, in the name of whoever called it."""
_BROKEN: dict[str, Exception] = {}
"""Modules of the repository that failed, and how."""


class _Base:
    """What a class has in place of a missing base."""

    def __init_subclass__(cls, **_: object) -> None:
        """Take whatever the missing base would have taken."""


class StandIn:
    """A value of a package that is missing: enough to define code with, too little to run it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, member: str) -> StandIn:
        # Torch and the standard library ask every value for its protocols: it has none.
        is_theirs = member.startswith("__") and not _is_ours(sys._getframe(1))
        if is_theirs or member.startswith(_PROTOCOLS):
            raise AttributeError(member)
        return StandIn(f"{self._name}.{member}")

    def __call__(self, *values: object, **_: object) -> object:
        """As a decorator, leave what is decorated alone; else make another stand-in."""
        alone = len(values) == 1 and not _
        if alone and (inspect.isfunction(values[0]) or inspect.isclass(values[0])):
            return values[0]
        return StandIn(f"{self._name}()")

    def __mro_entries__(self, _: tuple[object, ...]) -> tuple[type, ...]:
        return (_Base,)

    def __instancecheck__(self, _: object) -> bool:
        return False

    def __subclasscheck__(self, _: object) -> bool:
        return False

    def __getitem__(self, _: object) -> StandIn:
        return self

    def __or__(self, _: object) -> StandIn:
        return self

    __ror__ = __or__

    def __iter__(self) -> Iterator[object]:
        return iter(())

    def __bool__(self) -> bool:
        return False

    def __lt__(self, _: object) -> bool:
        return False

    __le__ = __gt__ = __ge__ = __lt__

    def __repr__(self) -> str:
        return f"<stand-in for {self._name}>"


def _member_of(module: str, member: str) -> StandIn:
    if member.startswith("__"):
        raise AttributeError(member)
    return StandIn(f"{module}.{member}")


class _Forgiving(SourceFileLoader):
    """Loads a module of the repository; where it fails, the rest of it is stood in for."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the module as far as it runs."""
        try:
            super().exec_module(module)
        except Exception as error:
            _BROKEN[module.__name__] = error
            vars(module)["__getattr__"] = partial(_member_of, module.__name__)


class _Repository(MetaPathFinder):
    """Finds the repository's own modules, before all others."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Find as Python does, and load with forgiveness."""
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.origin is None or not spec.origin.startswith(tuple(_ROOTS)):
            return None
        if isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Forgiving(name, spec.origin)
        return spec


class _Finder(MetaPathFinder, Loader):
    """Finds everything, and therefore stands last."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Take what no other finder knows; never part of torch, which has optional parts."""
        del path, target
        if name.partition(".")[0] in sys.stdlib_module_names or not _is_ours(_importer()):
            return None
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Make the empty module."""
        MISSING.append(spec.name)
        module = ModuleType(spec.name)
        vars(module)["__getattr__"] = partial(_member_of, spec.name)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""


def _importer() -> FrameType | None:
    """The frame whose import statement is at work; None where nothing is imported but asked for."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if "importlib" in file and "util" in file:  # frozen or not
            return None
        if file != __file__ and "importlib" not in file:
            return frame
        frame = frame.f_back
    return None


def _is_ours(frame: FrameType | None) -> bool:
    return frame is not None and frame.f_code.co_filename.startswith(tuple(_ROOTS))


def stand_in(root: str) -> None:
    """From now on every import that a file below ``root`` makes succeeds."""
    _ROOTS.append(f"{root.rstrip('/')}/")
    sys.meta_path.insert(0, _Repository())
    sys.meta_path.append(_Finder())


def original(
    root: str,
    module: str,
    qualname: str,
    *,
    arguments: Sequence[str],
    state: Sequence[str],
    lists: Mapping[str, int],
    constructor: Sequence[Any] | None,
    bound: Mapping[str, str],
    attributes: Mapping[str, Any],
    module_values: Mapping[str, Any],
) -> Callable[..., Any]:
    """Return the repository's function as one that takes arguments and state by position.

    Args:
        root: where the repository's top-level packages lie.
        module: dotted name.
        qualname: ``function`` or ``Class.method``.
        arguments: names of the call's arguments, lists as ``name_0``, ``name_1``, …
        state: attributes that are set on the instance; of a constructed one, ``__`` is a dot.
        lists: the arguments that are lists of tensors, and how long they are.
        constructor: arguments of the class; None makes the instance without ``__init__``.
        bound: attributes of such an instance → globals of the module that they are.
        attributes: other attributes of the instance.
        module_values: globals of the module to set after its import.
    """
    stand_in(root)
    sys.path.insert(0, root)
    imported = importlib.import_module(module)
    parts = qualname.split(".")
    if parts[0] not in vars(imported):
        raise _BROKEN.get(module) or AttributeError(f"{module} has no {parts[0]}")
    vars(imported).update(module_values)
    owner = getattr(imported, parts[0]) if len(parts) == 2 else None
    function = getattr(owner or imported, parts[-1])
    number = len(arguments)

    def call(*values: Any) -> Any:
        given = _gathered(dict(zip(arguments, values[:number], strict=True)), lists)
        if owner is None:
            return function(*given)
        instance = _bare_instance(owner) if constructor is None else owner(*constructor)
        for name, value in bound.items():
            setattr(instance, name, getattr(imported, value))
        for name, value in attributes.items():
            setattr(instance, name, value)
        for name, value in zip(state, values[number:], strict=True):
            _set(instance, name.replace("__", ".") if constructor is not None else name, value)
        return getattr(owner, parts[-1])(instance, *given)

    return call


def _gathered(values: Mapping[str, Any], lists: Mapping[str, int]) -> list[Any]:
    """Put the members of lists together again, in the place of their first."""
    members = {f"{n}_{i}": n for n, length in lists.items() for i in range(length)}
    gathered: dict[str, Any] = {}
    for name, value in values.items():
        if name in members:
            gathered.setdefault(members[name], []).append(value)
        else:
            gathered[name] = value
    return list(gathered.values())


def _bare_instance(owner: Any) -> Any:
    instance = object.__new__(owner)
    if issubclass(owner, torch.nn.Module):
        torch.nn.Module.__init__(instance)
    return instance


def _set(instance: Any, name: str, value: Any) -> None:
    """Set an attribute where it belongs: ``norms.0.weight`` in a submodule."""
    holder, _, last = name.rpartition(".")
    owner = instance.get_submodule(holder) if holder else instance
    if isinstance(getattr(owner, last, None), torch.nn.Parameter):
        value = torch.nn.Parameter(value, requires_grad=False)
    setattr(owner, last, value)
