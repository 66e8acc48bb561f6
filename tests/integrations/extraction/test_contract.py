from __future__ import annotations

import pytest

from evaluator.correctness.intake import OutputFacts, ReferenceFacts
from evaluator.problem import Contract, OutputKind
from evaluator.workload import DType
from integrations.errors import WorkloadsError
from integrations.extraction.closure import close_over
from integrations.extraction.contract import build_contract, unlike_code
from integrations.extraction.machines import Machine
from integrations.extraction.resolution import Resolver
from integrations.extraction.selections import output_tags
from integrations.extraction.source import SourceTree
from integrations.workloads import ContractOverride
from tests.integrations.extraction.conftest import Extract


def facts(*dtypes: DType, writes: tuple[str, ...] = ()) -> ReferenceFacts:
    outputs = tuple(OutputFacts(d, (4,), None) for d in dtypes)
    return ReferenceFacts(outputs, len(dtypes) > 1, False, writes, True)


def contract_of(extract_from: Extract, body: str, *dtypes: DType) -> Contract:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    source = f"import torch\ndef pick(x, k):\n    return x.topk(k)\ndef f(x, k):\n{lines}\n"
    tags = output_tags(extract_from({"a.py": source}, "a.py::f").closure)
    return build_contract(facts(*dtypes), tags, ContractOverride())[0]


@pytest.mark.parametrize(
    "body",
    [
        "v, i = torch.topk(x, k, dim=-1, sorted=False)\nreturn v, i.to(torch.int32)",
        "i = torch.topk(x, k, sorted=False)[1]\nv = x.gather(1, i)\nreturn v / v.sum(), i + 1",
        "r = x.topk(k, sorted=False)\nreturn r.values * 2, r.indices",
        "def s(y):\n    return y * 2\nv, i = s(x).topk(k, sorted=False)\nreturn v, i",
    ],
)
def test_unsorted_selections_are_indices_in_any_order(extract_from: Extract, body: str) -> None:
    values, indices = contract_of(extract_from, body, DType.FLOAT32, DType.INT64).outputs
    assert (indices.kind, indices.selects) == (OutputKind.INDICES, 0)
    assert values.order_free_dim == indices.order_free_dim == -1


@pytest.mark.parametrize(
    "body",
    ["return pick(x, k)", "v, i = x.sort(dim=-1)\nreturn v, i", "v, i = x.max(dim=1)\nreturn v, i"],
)
def test_sorted_selections_keep_their_order(extract_from: Extract, body: str) -> None:
    values, indices = contract_of(extract_from, body, DType.FLOAT32, DType.INT64).outputs
    assert indices.kind is OutputKind.INDICES
    assert values.order_free_dim is indices.order_free_dim is None


def test_an_order_that_the_scalars_decide_is_seen(extract_from: Extract) -> None:
    source = "def f(x, n: int):\n    v, i = x.topk(2, sorted=(True if n > 0 else False))\n"
    source += "    return v, i\n"
    closure = extract_from({"a.py": source}, "a.py::f").closure
    assert not any(s.order_free for s in output_tags(closure)[1].indices)
    view = extract_from({"b.py": source}, "b.py::f")
    resolver = Resolver(SourceTree(view.target.module.path.parent), Machine.CUDA)
    folded = close_over(view.target, resolver, {"n": 0})
    assert all(s.order_free for s in output_tags(folded)[1].indices)


@pytest.mark.parametrize(
    "body",
    [
        "return x * 2, x.to(torch.int32)",  # no selection at all
        "i = x.argmax(dim=-1)\nreturn x * 2, i",  # nothing returned is what i selects
        "v, i = x.topk(k)\nreturn v, i // 2",  # no longer an index of v
    ],
)
def test_other_integers_must_be_equal(extract_from: Extract, body: str) -> None:
    outputs = contract_of(extract_from, body, DType.FLOAT32, DType.INT64).outputs
    assert [o.kind for o in outputs] == [OutputKind.VALUES, OutputKind.EXACT]


def test_a_write_that_only_the_code_or_only_running_shows_is_told() -> None:
    told = unlike_code(["x"], ["x", "cache", "gone"], ["x", "cache"])
    assert [a.detail.partition(",")[0] for a in told] == ["the code may write cache"]
    assert "x was seen to be written" in unlike_code(["x"], [], ["x"])[0].detail
    assert unlike_code(["x"], ["x"], ["x"]) == []


def test_the_users_word_on_the_contract_is_the_last() -> None:
    override = ContractOverride.model_validate(
        {"outputs": {1: {"kind": "indices", "selects": 0, "order_free_dim": 1}}}
    )
    contract, _ = build_contract(facts(DType.FLOAT32, DType.INT64), (), override)
    assert contract.outputs[1].order_free_dim == 1


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ({"outputs": {5: {"order_free_dim": 0}}}, "names output 5"),
        ({"outputs": {0: {"kind": "indices"}}}, "contract.outputs.0"),
        ({"writes": []}, "leaves out x"),
    ],
)
def test_an_override_that_cannot_hold_is_refused(override: dict[str, object], message: str) -> None:
    with pytest.raises(WorkloadsError, match=message):
        build_contract(
            facts(DType.FLOAT32, writes=("x",)), (), ContractOverride.model_validate(override)
        )
