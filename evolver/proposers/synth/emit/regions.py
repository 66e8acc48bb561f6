"""Where a stored value's elements go: a tensor of its own, or regions of an argument."""

from __future__ import annotations

from dataclasses import dataclass, field

from evolver.proposers.synth import ir
from evolver.proposers.synth.emit.index import Place, looked_up
from evolver.proposers.synth.emit.memory import Tensor
from evolver.proposers.synth.plan import Store
from evolver.proposers.synth.writes import Region


@dataclass(frozen=True)
class Target:
    """One region of one store."""

    tensor: Tensor
    region: Region

    @property
    def value(self) -> int:
        """The node whose elements are stored."""
        return self.region.value

    def place(self, place: Place) -> Place:
        """Where in the tensor the value's element at ``place`` goes."""
        result = list(place)
        if self.region.indices:
            rank = self.region_rank
            leading = place[:rank]
            looked = [
                looked_up(index, leading, extent)
                for index, extent in zip(self.region.indices, self.tensor.type.shape, strict=False)
            ]
            result = [*looked, *place[rank:]]
        for span in reversed(self.region.spans):
            result[span.axis] = result[span.axis] * span.step + span.start
        return tuple(result)

    region_rank: int = field(default=0)
    """How many leading axes of the value are those of the indices."""


def targets(program: ir.Program, store: Store, tensor: Tensor) -> list[Target]:
    """Return where a store's elements go, in the order in which they must."""
    return [
        Target(
            tensor,
            region,
            program.nodes[region.indices[0]].type.rank if region.indices else 0,
        )
        for region in store.regions
    ]
