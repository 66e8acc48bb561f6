"""Which bytes the reference cannot do without, found by changing elements of its inputs.

An element matters if another value in its place changes what is returned or written: any
correct implementation must then read it, for it could not tell the two inputs apart. Elements
are sampled, so what is reported is how many of how many mattered. Values are replaced by
legal ones, so that an index stays one. Bytes written are those whose values depend on
the inputs. The supervisor draws the conclusions (``evaluator/timing/roofline.py``).
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from .calls import Target, output_tensors
from .inputs import generate

_FACTOR = 8.0
"""A poison is so many times the largest magnitude of its tensor: nothing that is summed or
compared with the rest absorbs it."""
_GUESSABLE = ("constant", "arange", "permutation")
"""Elements of these need not be read, or have no other legal value."""


@dataclass(frozen=True)
class Reading:
    """How many of the sampled elements of one argument mattered, and its distinct bytes."""

    size_bytes: int
    mattered: int
    sampled: int


class _Probe:
    """The target on the inputs of one seed, to be called again and again."""

    def __init__(
        self,
        target: Target,
        module: Mapping[str, Any],
        arguments: Mapping[str, Any],
        writes: Sequence[str],
        *,
        seed: int,
        device: str,
    ) -> None:
        self.values = generate(arguments, seed=seed, device=device)
        self._call = target.bind(module, self.values)
        self._writes = writes
        self._saved = {name: self.values[name].clone() for name in writes}
        self.outputs: Sequence[torch.Tensor] = ()
        self.before = self.run()

    def run(self) -> list[torch.Tensor]:
        """Call once; return copies of what is returned and of what is written."""
        self.outputs = output_tensors(self._call())
        return [t.clone() for t in (*self.outputs, *(self.values[n] for n in self._writes))]

    def restore(self) -> None:
        """Undo what the last call wrote."""
        for name, pristine in self._saved.items():
            self.values[name].copy_(pristine)

    def matters(self, name: str, spec: Mapping[str, Any], rng: random.Random) -> bool:
        """Whether some other value of one random element of ``name`` changes the result."""
        tensor = self.values[name]
        where = tuple(rng.randrange(extent) for extent in tensor.shape)
        self.restore()
        old = tensor[where].clone()
        for other in _others(tensor, old, spec):
            self.restore()
            tensor[where] = other
            changed = not _same(self.before, self._without(name, where, other))
            self.restore()
            tensor[where] = old
            if changed:
                return True
        return False

    def _without(self, name: str, where: tuple[int, ...], other: torch.Tensor) -> Sequence[Any]:
        """Call; an element of ``name`` that was left as it is (``other``) shows nothing."""
        after = self.run()
        seen = (*self.outputs, *(self.values[n] for n in self._writes))
        for position, tensor in enumerate(seen):
            if tensor is self.values[name] and _same([after[position][where]], [other]):
                after[position][where] = self.before[position][where]
        return after

    def written_bytes(self, other: _Probe) -> float:
        """Bytes of fresh outputs and of declared writes whose values follow the inputs."""
        self.restore()
        pristine = [self.values[n].clone() for n in self._writes]
        mine = self.run()
        owned = {v.untyped_storage().data_ptr() for v in self.values.values() if _is_tensor(v)}
        total = 0.0
        for position, output in enumerate(self.outputs):
            if output.untyped_storage().data_ptr() not in owned:
                total += _changed_bytes(mine[position], other.before[position])
        after = mine[len(self.outputs) :]
        pairs = zip(pristine, after, strict=True)
        return total + sum(_changed_bytes(old, new) for old, new in pairs)


def observe(
    target: Target,
    module: Mapping[str, Any],
    arguments: Mapping[str, Any],
    writes: Sequence[str],
    *,
    seeds: Sequence[int],
    device: str,
    samples: int,
    seconds: float,
) -> dict[str, Any]:
    """Return the readings of every argument that could be sampled, and the bytes written.

    Args:
        target: what to call in ``module``.
        module: the reference's names.
        arguments: the workload's.
        writes: the arguments that the contract says are written.
        seeds: at least two, among which the samples are shared: what is read may follow from
            the values.
        device: where to run.
        samples: elements per argument.
        seconds: for all of it; what was not reached by then is sampled less.
    """
    deadline = time.monotonic() + seconds
    rng = random.Random(seeds[0])  # noqa: S311 (which elements are sampled is no secret)
    probes = [_Probe(target, module, arguments, writes, seed=seed, device=device) for seed in seeds]
    counted: dict[str, list[int]] = {name: [0, 0] for name in _sampled(arguments)}
    for number in range(samples):
        probe = probes[number % len(probes)]
        for name, count in counted.items():
            if time.monotonic() < deadline:
                count[0] += probe.matters(name, arguments[name], rng)
                count[1] += 1
    readings = {
        name: asdict(Reading(_distinct_bytes(probes[0].values[name]), *count))
        for name, count in counted.items()
    }
    return {"readings": readings, "written_bytes": probes[0].written_bytes(probes[1])}


def _sampled(arguments: Mapping[str, Any]) -> list[str]:
    """The tensors of which elements can be changed; an alias counts with its owner."""
    return [
        name
        for name, spec in arguments.items()
        if isinstance(spec, Mapping)
        and spec.get("alias_of") is None
        and spec["values"]["kind"] not in _GUESSABLE
        and 0 not in spec["shape"]
    ]


def _others(tensor: torch.Tensor, old: torch.Tensor, spec: Mapping[str, Any]) -> list[torch.Tensor]:
    """Other legal values for an element: far out on both sides, or the next integer."""
    values = spec["values"]
    if tensor.dtype == torch.bool:
        return [~old]
    if not tensor.is_floating_point():
        low, high = int(values["low"]), int(values["high"])
        if values["kind"] != "integers" or high - low < 2:
            return []
        return [(old - low + 1) % (high - low) + low]
    if values["kind"] == "uniform":
        ends = values["low"], values["low"] + 0.99 * (values["high"] - values["low"])
        return [torch.full_like(old, end) for end in ends]
    largest = float(tensor.abs().max().nan_to_num(1.0, 1.0, 1.0))
    poison = min(_FACTOR * largest + 1.0, torch.finfo(tensor.dtype).max / 4)
    return [torch.full_like(old, poison), torch.full_like(old, -poison)]


def _distinct_bytes(tensor: torch.Tensor) -> int:
    """Bytes of the elements, those that a stride of zero repeats counted once."""
    count = 1
    for extent, step in zip(tensor.shape, tensor.stride(), strict=True):
        count *= extent if step else 1
    return min(count * tensor.element_size(), tensor.untyped_storage().nbytes())


def _changed_bytes(one: torch.Tensor, other: torch.Tensor) -> float:
    """Bytes of the elements that differ in bits; dimensions that repeat count once."""
    if one.shape != other.shape or not one.numel():
        return 0.0
    for dim in range(one.dim()):
        first = one.narrow(dim, 0, 1)
        if _same([one], [first.expand_as(one)]):
            one, other = first, other.narrow(dim, 0, 1)
    differ = (_bits(one) != _bits(other)).reshape(-1, one.element_size()).any(dim=1)
    return float(differ.sum()) * one.element_size()


def _same(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    return all(torch.equal(_bits(a), _bits(b)) for a, b in zip(one, other, strict=True))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)
