"""From a file in KernelBench's form to a problem."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluator.workload import TensorSpec, ValueKind
from integrations.kernelbench.adapter import describe, load_kernelbench
from integrations.kernelbench.checkout import files
from integrations.kernelbench.errors import CheckoutMissing, NotCarried
from integrations.kernelbench.looking import Seen, read_answer
from tests.kernelbench_files import NORMALISED, make_checkout, real_checkout, seen, stateless


def test_parameters_and_buffers_are_drawn_anew_and_none_can_be_left_out() -> None:
    described = describe(seen(NORMALISED))
    assert described.entry.constructor == (128, [128])
    assert described.arguments == ("x",)
    assert described.state[0] == "scale"
    assert "norm__running_var" in described.state
    values = {n: s.values for n, s in described.workload.tensors.items()}
    assert values["x"].kind is ValueKind.UNIFORM
    assert (values["norm__weight"].low, values["norm__weight"].high) == (0.5, 1.5)
    assert (values["norm__bias"].low, values["norm__bias"].high) == (-0.5, 0.5)
    assert values["norm__running_var"].low > 0
    assert values["norm__num_batches_tracked"].kind is ValueKind.CONSTANT


def test_an_input_named_like_a_parameter_gets_another_name() -> None:
    text = NORMALISED.replace("(self, x: torch.Tensor)", "(self, scale)").replace(
        "self.norm(x)", "self.norm(scale)"
    )
    assert describe(seen(text)).arguments == ("input_scale",)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            NORMALISED.replace("(width,)]", "(width,), object()]").replace(
                "width, shape):", "width, shape, option):"
            ),
            "more than plain values",
        ),
        (
            NORMALISED.replace(
                "self.scale = nn", "self.norm.bias = self.norm.weight\n        self.scale = nn"
            ),
            "are one tensor",
        ),
        (stateless("torch.rand(4), torch.rand(4)"), "2 inputs"),
    ],
)
def test_what_no_problem_can_describe_is_refused(text: str, why: str) -> None:
    with pytest.raises(NotCarried, match=why):
        describe(seen(text))


@pytest.mark.parametrize(
    "answer",
    [b"", b"[]", b'{"seen": 3}', b'{"seen": {"inputs": 3, "state": []}}', b"\xff", b"{}"],
)
def test_a_sandbox_that_answers_nonsense_is_no_problem(answer: bytes) -> None:
    with pytest.raises(NotCarried, match="nonsense"):
        read_answer(answer)


def test_what_a_file_failed_by_is_told() -> None:
    with pytest.raises(NotCarried, match="NameError: no"):
        read_answer(b'{"failure": "NameError: no"}')


def test_files_are_known_by_number_and_the_degenerate_by_reason(tmp_path: Path) -> None:
    named = {(1, "23_Softmax.py"): "", (1, "2_Odd name (x).py"): "", (1, "notes.py"): ""}
    found = files(make_checkout(tmp_path, named), 1)
    assert sorted(found) == [2, 23]
    assert found[2].id == "kernelbench-1-2-Odd_name__x"
    assert found[2].degenerate is None
    assert "issue 165" in (found[23].degenerate or "")


def test_a_folder_that_is_no_checkout_is_told(tmp_path: Path) -> None:
    with pytest.raises(CheckoutMissing, match="git clone"):
        files(tmp_path, 1)


@pytest.mark.sandbox
def test_a_file_becomes_a_problem_whose_reference_is_its_own_text(tmp_path: Path) -> None:
    root = make_checkout(tmp_path, {(2, "7_Norm.py"): NORMALISED})
    loaded = load_kernelbench(files(root, 2)[7])
    assert loaded.reference_source == NORMALISED
    problem = loaded.problem
    assert problem.id == "kernelbench-2-7-Norm"
    assert problem.origin.target == "KernelBench/level2/7_Norm.py::Model.forward"
    assert problem.entry.candidate_function == "ModelNew"
    assert problem.contract.writes == (
        "norm__running_mean",
        "norm__running_var",
        "norm__num_batches_tracked",
    )


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("raise SystemExit(3)", "SystemExit"),
        ("import os\nos._exit(0)", "failed"),
        (stateless("torch.rand(8)", returned="{'a': x}"), "dict"),
    ],
)
def test_files_that_fail_in_the_sandbox_are_refused(tmp_path: Path, text: str, why: str) -> None:
    root = make_checkout(tmp_path, {(1, "1_Bad.py"): text})
    with pytest.raises(NotCarried, match=why):
        load_kernelbench(files(root, 1)[1])


@pytest.mark.real
@pytest.mark.parametrize(
    ("level", "number", "kinds"),
    [
        (1, 12, {"A": ValueKind.UNIFORM, "B": ValueKind.UNIFORM}),
        (3, 9, {"x": ValueKind.UNIFORM, "conv1__weight": ValueKind.UNIFORM}),
    ],
)
def test_files_of_kernelbench_are_described(
    level: int, number: int, kinds: dict[str, ValueKind]
) -> None:
    described = describe(shown(level, number))
    specs = {n: described.workload.arguments[n] for n in kinds}
    assert {n: s.values.kind for n, s in specs.items() if isinstance(s, TensorSpec)} == kinds


@pytest.mark.real
@pytest.mark.parametrize(("level", "number", "why"), [(1, 13, "neither"), (3, 43, "buffer bias")])
def test_files_of_kernelbench_with_a_structure_are_refused(
    level: int, number: int, why: str
) -> None:
    with pytest.raises(NotCarried, match=why):
        describe(shown(level, number))


def shown(level: int, number: int) -> Seen:
    from integrations.kernelbench.looking import look

    return look(files(real_checkout(), level)[number].path.read_text())
