"""From a case to the facts that are judged: what code can tell is found by running it.

Ops, their counts and bytes come from the reference itself, called on tensors without memory
under the dispatch log that the evaluator's worker uses; similarities from programs under
``programs/``. Times are measured ones where a case names them. Others are modelled for an
H200: an op takes its floor (a kernel in a CUDA graph: 1.6 us, as the nine of RMSNorm did when
they were measured) or its bytes at 80 % of 4.8 TB/s, a candidate the same per launch at the
bandwidth share that the case gives.

``python -m tests.triviality.features`` writes ``labelled.yml`` anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import yaml
from torch.utils._pytree import tree_leaves

from evaluator.census.findings import RawCensus, op_counts
from evaluator.census.similarity import similarity
from evaluator.census.triviality import CORPUS_FILE, LabelledWin
from evaluator.worker.census import DispatchLog, Log
from policies.model import EvaluatorPolicy
from tests.triviality import references

FOLDER = Path(__file__).parent
_MEASURED = FOLDER.parents[1] / "benchmarks" / "results" / "first-path-h200.json"
_BYTES_PER_US = 4.8e6
_LAUNCH_US = EvaluatorPolicy.default().triviality.launch_us["graph_replay"]
_EAGER_SHARE = 0.8
_FLOOR_US = 1.6
_SLOW_FLOORS_US = {"topk": 7.0, "sort": 12.0, "argsort": 12.0, "cumsum": 3.0, "index_put_": 4.0}
_SPARSE = ("index", "index_put_", "embedding", "gather")
"""Ops that touch a part of their first argument."""
_MM_FLOPS_PER_US = 6e8
_HALF_WIDTH = 0.005
"""What a confirmation's interval leaves below the speedup, where none was measured."""


def read_cases() -> list[dict[str, Any]]:
    """Every case under ``cases/``, files in order."""
    found: list[dict[str, Any]] = []
    for path in sorted((FOLDER / "cases").glob("*.yml")):
        found += yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def labelled(case: dict[str, Any]) -> LabelledWin:
    """Work out the facts of ``case``."""
    inputs = {name: _meta(spec) for name, spec in case["inputs"].items()}
    function = getattr(references, case["reference"])
    log = Log()
    with _Traffic(log) as traffic:
        returned = function(**inputs)
    counts = op_counts(RawCensus.model_validate({"ops": [asdict(e) for e in log.entries()]}))
    figures = {**case["figures"], **_measured(case["figures"].get("measured"))}
    eager_us = figures.get("eager_us") or traffic.eager_us(counts)
    whole = {id(t): t for t in (*inputs.values(), *_tensors(returned))}
    moved = sum(_bytes(t) for at, t in whole.items() if at not in traffic.tables)
    candidate_us = figures.get("candidate_us")
    if candidate_us is None and "gain" in figures:
        candidate_us = eager_us / figures["gain"]
    if candidate_us is None:
        share = figures.get("bandwidth", _EAGER_SHARE)
        candidate_us = max(_FLOOR_US * figures["launches"], moved / (share * _BYTES_PER_US))
    over = figures.get("over_compiled")
    gain = eager_us / candidate_us
    facts = {
        "gain": gain,
        "gain_low": figures.get("gain_low", gain * (1 - _HALF_WIDTH)),
        "over_compiled": over,
        "over_compiled_low": figures.get("over_compiled_low", over and over * (1 - _HALF_WIDTH)),
        "eager_us": eager_us,
        "candidate_us": candidate_us,
        "eager_launches": sum(counts.values()),
        "launches": figures["launches"],
        "launch_us": _LAUNCH_US,
        "reference_ops": counts,
        "roofline_before": min(1.0, moved / _BYTES_PER_US / eager_us),
        "similarity": _similarity(case),
        "end_to_end_share": case.get("end_to_end_share"),
        "degenerate": case.get("degenerate", False),
        "unimproved": case.get("unimproved", False),
    }
    rounded = {k: round(v, 4) if isinstance(v, float) else v for k, v in facts.items()}
    return LabelledWin.model_validate(
        {"id": case["id"], "trivial": case["trivial"], "facts": rounded}
    )


class _Traffic(DispatchLog):
    """Notes the bytes that each op reads and writes, and the arithmetic of products."""

    def __init__(self, log: Log) -> None:
        super().__init__(log)
        self._calls: list[tuple[str, float]] = []
        self.tables: set[int] = set()
        """Tensors of which only a part is touched; their bytes say nothing."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        returned = super().__torch_dispatch__(func, types, args, kwargs)
        name = func._schema.name.rpartition("::")[2]
        read = [a for a in tree_leaves(args) if isinstance(a, torch.Tensor)]
        touched = [*read, *_tensors(returned)]
        if name in _SPARSE:
            self.tables.add(id(read[0]))
            touched = read[1:] * 2
        us = sum(map(_bytes, touched)) / (_EAGER_SHARE * _BYTES_PER_US)
        if name in ("mm", "bmm"):
            us = max(us, 2 * returned.numel() * read[0].shape[-1] / _MM_FLOPS_PER_US)
        self._calls.append((name, max(us, _SLOW_FLOORS_US.get(name, _FLOOR_US))))
        return returned

    def eager_us(self, counted: Mapping[str, int]) -> float:
        """The time of all ops that touch memory, one after the other."""
        return sum(us for name, us in self._calls if name in counted)


def _meta(spec: list[Any]) -> torch.Tensor:
    *shape, dtype = spec
    return torch.empty(shape, dtype=getattr(torch, dtype), device="meta")


def _tensors(returned: Any) -> tuple[torch.Tensor, ...]:
    return tuple(t for t in tree_leaves(returned) if isinstance(t, torch.Tensor))


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _measured(where: list[str] | None) -> dict[str, float]:
    """One workload of a target that ``ksmith bench first-path`` measured."""
    if where is None:
        return {}
    target, name = where
    details = json.loads(_MEASURED.read_text(encoding="utf-8"))["details"]
    found = next(w for w in details[target]["workloads"] if w["workload"] == name)
    speedups = {s["baseline"]: s for s in found["speedups"]}
    return {
        "eager_us": found["baselines_us"]["eager"],
        "candidate_us": found["candidate_us"],
        "gain_low": speedups["eager"]["lower_99"],
        "over_compiled": speedups["compiled"]["value"],
        "over_compiled_low": speedups["compiled"]["lower_99"],
    }


def _similarity(case: dict[str, Any]) -> float | None:
    if "translation" not in case:
        return None
    texts = [(FOLDER / "programs" / case[k]).read_text() for k in ("candidate", "translation")]
    return similarity(*texts)


def main() -> None:
    """Write the corpus that ``evaluator.census.triviality.read_corpus`` reads."""
    cases = [labelled(c).model_dump(mode="json", exclude_defaults=True) for c in read_cases()]
    text = yaml.safe_dump(cases, sort_keys=False, width=100)
    head = "# Written by `python -m tests.triviality.features` from cases/; edit those.\n"
    (FOLDER / CORPUS_FILE).write_text(head + text, encoding="utf-8")


if __name__ == "__main__":
    main()
