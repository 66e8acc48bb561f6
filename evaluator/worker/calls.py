"""One call of the loaded module: arguments in, facts and raw storages out.

A reference may be a method: its instance is made by ``object.__new__`` and one ``setattr``
per state attribute, before the call and outside any timed region. Nothing is compared here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from .protocol import NOTHING, BlobList, CallFacts, TensorFacts


class BrokenContract(Exception):
    """The function returned what no contract can describe."""


@dataclass(frozen=True)
class Target:
    """What to call in a module, and how its parameters are spelled."""

    function: str
    class_name: str | None
    arguments: tuple[str, ...]
    state: tuple[str, ...]
    constructor: Sequence[Any] | None = None
    """What the class is constructed with; None makes its instance from the state alone."""
    writes: tuple[str, ...] = ()
    """Arguments that the contract says are written."""

    def bind(self, module: Mapping[str, Any], values: Mapping[str, Any]) -> BoundCall:
        """Return the callable and the positional arguments for ``values``.

        Raises:
            AttributeError: the module lacks the function or class.
        """
        if self.class_name is None:
            ordered = tuple(values[name] for name in (*self.arguments, *self.state))
            return BoundCall(_member(module, self.function), ordered)
        owner = _member(module, self.class_name)
        if self.constructor is not None:
            instance = owner(*self.constructor)
            load_state(instance, {name: values[name] for name in self.state})
        else:
            instance = object.__new__(owner)
            if issubclass(owner, torch.nn.Module):
                torch.nn.Module.__init__(instance)
            for name in self.state:
                setattr(instance, name, values[name])
        ordered = (instance, *(values[name] for name in self.arguments))
        return BoundCall(getattr(owner, self.function), ordered)


@dataclass(frozen=True)
class BoundCall:
    """A function with its positional arguments."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]

    def __call__(self) -> Any:
        """Call the function."""
        return self.function(*self.arguments)


def _member(module: Mapping[str, Any], name: str) -> Any:
    if name not in module:
        raise AttributeError(f"the module does not define {name!r}")
    return module[name]


def load_state(module: torch.nn.Module, state: Mapping[str, torch.Tensor]) -> None:
    """Make ``state`` the parameters and buffers of ``module``, in memory and type as it is.

    Names have ``__`` for a dot. A module whose names are others takes the tensors by position,
    as long as shapes agree (evaluators.md, E78).

    Raises:
        BrokenContract: the module's state has another number of tensors, or other shapes.
    """
    own = module.state_dict()
    named = {name.replace("__", "."): tensor for name, tensor in state.items()}
    if named.keys() != own.keys():
        named = dict(zip(own, state.values(), strict=False))
    wanted = [tuple(t.shape) for t in state.values()]
    shapes = {name: tuple(tensor.shape) for name, tensor in own.items()}
    if len(own) != len(state) or any(tuple(t.shape) != shapes[n] for n, t in named.items()):
        raise BrokenContract(f"the state has shapes {wanted}, the module {[*shapes.values()]}")
    module.load_state_dict(named, assign=True)


def lift(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``values`` with floating tensors in float64; aliases stay aliases."""
    lifted: dict[int, torch.Tensor] = {}
    result: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            if id(value) not in lifted:
                lifted[id(value)] = _to_float64(value)
            value = lifted[id(value)]
        result[name] = value
    return result


def _to_float64(value: torch.Tensor) -> torch.Tensor:
    """``value`` in float64 with its strides, so that layout tests take the same branch."""
    if value.is_contiguous():
        return value.to(torch.float64)
    wide = value.untyped_storage()
    flat = torch.empty(0, dtype=value.dtype, device=value.device).set_(wide)
    return flat.to(torch.float64).as_strided(value.shape, value.stride(), value.storage_offset())


def describe_call(
    returned: Any, values: Mapping[str, Any], blobs: BlobList, *, lifted: bool
) -> CallFacts:
    """Copy what the call returned and its tensor arguments into ``blobs``.

    Raises:
        BrokenContract: something other than None, a tensor or a tuple of tensors was returned.
    """
    tensors = {n: v for n, v in values.items() if isinstance(v, torch.Tensor)}
    outputs = output_tensors(returned)
    named = {**{f"output {i}": t for i, t in enumerate(outputs)}, **tensors}
    stored = _Storages(named, blobs)
    return CallFacts(
        container=_container(returned),
        outputs=tuple(stored.facts(f"output {i}") for i in range(len(outputs))),
        arguments=tuple(stored.facts(name) for name in tensors),
        lifted=lifted,
    )


def describe_tensors(tensors: Sequence[torch.Tensor], blobs: BlobList) -> list[dict[str, Any]]:
    """Copy ``tensors`` into ``blobs`` and return their facts as JSON."""
    stored = _Storages({f"output {i}": t for i, t in enumerate(tensors)}, blobs)
    return [asdict(stored.facts(f"output {i}")) for i in range(len(tensors))]


def output_tensors(returned: Any) -> Sequence[torch.Tensor]:
    """Return the tensors of a bare tensor, tuple or list; none of None.

    Raises:
        BrokenContract: it is something else, or holds something else.
    """
    if returned is None:
        return ()
    if isinstance(returned, torch.Tensor):
        return (returned,)
    if not isinstance(returned, (tuple, list)):
        raise BrokenContract(f"returned {_type_name(returned)}, not a tensor or a tuple of them")
    for position, item in enumerate(returned):
        if not isinstance(item, torch.Tensor):
            raise BrokenContract(f"output {position} is {_type_name(item)}, not a tensor")
    return tuple(returned)


def _container(returned: Any) -> str:
    if returned is None:
        return NOTHING
    return "tensor" if isinstance(returned, torch.Tensor) else type(returned).__name__


def held(values: Mapping[str, Any]) -> dict[str, Any]:
    """Further handles on the memory of ``values``, that a call does not get."""
    return {n: v.detach() if isinstance(v, torch.Tensor) else v for n, v in values.items()}


def in_memory(values: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """``values`` after a call; one that was pointed at other memory as the caller's memory has it.

    Args:
        values: what was called with.
        before: what ``held`` gave before the call.
    """
    return {n: v if _same_memory(v, before[n]) else before[n] for n, v in values.items()}


def _same_memory(value: Any, before: Any) -> bool:
    if not isinstance(value, torch.Tensor):
        return True
    return bool(value.untyped_storage().data_ptr() == before.untyped_storage().data_ptr())


def as_json(facts: CallFacts) -> dict[str, Any]:
    """Return the JSON form of ``facts``."""
    return asdict(facts)


class _Storages:
    """Sends each distinct storage once."""

    def __init__(self, named: Mapping[str, torch.Tensor], blobs: BlobList) -> None:
        self._named = named
        self._blobs = blobs
        self._sent: dict[int, int] = {}

    def facts(self, name: str) -> TensorFacts:
        tensor = self._named[name]
        dense = torch.Tensor.detach(tensor)
        storage = dense.untyped_storage()
        return TensorFacts(
            name=name,
            type_name=_type_name(tensor),
            dtype=str(dense.dtype).removeprefix("torch."),
            shape=tuple(dense.shape),
            strides=tuple(dense.stride()),
            offset=int(dense.storage_offset()),
            device=dense.device.type,
            blob=self._send(storage),
            shares=self._sharing(name, storage),
        )

    def _sharing(self, name: str, storage: torch.UntypedStorage) -> tuple[str, ...]:
        """The other tensors on ``storage``; empty tensors share nothing."""
        if not storage.nbytes():
            return ()
        at = storage.data_ptr()
        others = (n for n in self._named if n != name)
        return tuple(n for n in others if self._named[n].untyped_storage().data_ptr() == at)

    def _send(self, storage: torch.UntypedStorage) -> int:
        key = storage.data_ptr()
        if key == 0 or key not in self._sent:
            data = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
            self._sent[key] = self._blobs.add(data.cpu().numpy().tobytes())
        return self._sent[key]


def _type_name(value: object) -> str:
    """The type of ``value``; one that only calls itself torch's is told from it."""
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    is_own = isinstance(value, torch.Tensor) and name == "torch.Tensor" and kind is not torch.Tensor
    return f"{name} (a subclass of that name)" if is_own else name
