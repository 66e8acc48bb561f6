"""The guard allows what was tested and what lies between, and nothing else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from evaluator.problem import Contract, LoadedProblem, Output
from evaluator.workload import DType, TensorSpec, Workload
from integrations.patch.guard import Case, contiguous_strides, derive_cases
from integrations.patch.samples import outside_sample, samples_of
from tests.builders import make_problem, make_tensor


class FakeTensor:
    """What the guard asks of a tensor."""

    def __init__(self, spec: TensorSpec, address: int) -> None:
        self.shape = spec.shape
        self.dtype = spec.dtype.value
        self._strides = spec.strides or contiguous_strides(spec.shape)
        self._address = address

    def dim(self) -> int:
        return len(self.shape)

    def stride(self, dim: int) -> int:
        return self._strides[dim]

    def is_contiguous(self) -> bool:
        return self._strides == contiguous_strides(self.shape)

    def data_ptr(self) -> int:
        return self._address


def allows(cases: tuple[Case, ...], arguments: dict[str, Any]) -> bool:
    made: dict[str, Any] = {}
    for address, (name, value) in enumerate(arguments.items()):
        made[name] = FakeTensor(value, address) if isinstance(value, TensorSpec) else value
        if isinstance(value, TensorSpec) and value.alias_of:
            made[name] = made[value.alias_of]
    torch = SimpleNamespace(**{d.value: d.value for d in DType})
    names = {"torch": torch, "_PLAIN_TENSORS": (FakeTensor,), **made}
    return any(all(eval(c, names) for c in case.conditions) for case in cases)


def workload(name: str, rows: int, cols: int, **changes: Any) -> Workload:
    dtype = changes.pop("dtype", DType.FLOAT32)
    arguments = {
        "x": make_tensor(rows, cols, dtype=dtype),
        "residual": make_tensor(rows, cols, dtype=dtype),
        "weight": make_tensor(cols, dtype=dtype),
        "eps": 1e-6,
    }
    return Workload(name=name, arguments={**arguments, **changes})


def norm(*workloads: Workload) -> tuple[LoadedProblem, tuple[Case, ...]]:
    loaded = make_problem(workloads=workloads)
    return loaded, derive_cases(loaded.problem, loaded.problem.workloads)


sizes = st.tuples(st.integers(1, 300), st.integers(1, 300))


@given(st.lists(sizes, min_size=1, max_size=5))
def test_every_tested_input_is_allowed(shapes: list[tuple[int, int]]) -> None:
    _, cases = norm(*(workload(f"w{n}", *shape) for n, shape in enumerate(shapes)))

    for number, shape in enumerate(shapes):
        assert allows(cases, workload(f"v{number}", *shape).arguments)


@given(st.lists(sizes, min_size=1, max_size=5), sizes)
def test_nothing_outside_the_tested_range_is_allowed(
    shapes: list[tuple[int, int]], asked: tuple[int, int]
) -> None:
    _, cases = norm(*(workload(f"w{n}", *shape) for n, shape in enumerate(shapes)))

    inside = all(
        min(tested) <= size <= max(tested)
        for tested, size in zip(zip(*shapes, strict=True), asked, strict=True)
    )
    assert inside or not allows(cases, workload("asked", *asked).arguments)


@given(st.lists(sizes, min_size=1, max_size=5))
def test_every_input_of_the_generated_test_is_inside_and_the_outside_one_is_not(
    shapes: list[tuple[int, int]],
) -> None:
    _, cases = norm(*(workload(f"w{n}", *shape) for n, shape in enumerate(shapes)))

    assert all(allows(cases, s.arguments) for s in samples_of(cases))
    outside = outside_sample(cases)
    assert outside is None or not allows(cases, outside.arguments)


def test_sizes_between_two_tested_ones_are_allowed() -> None:
    _, cases = norm(workload("a", 1, 128), workload("b", 512, 128))

    assert allows(cases, workload("c", 77, 128).arguments)
    assert not allows(cases, workload("c", 513, 128).arguments)
    assert not allows(cases, workload("c", 77, 64).arguments)


def test_divisibility_that_all_tested_sizes_share_is_kept() -> None:
    _, cases = norm(workload("a", 1, 64), workload("b", 2, 1024), workload("c", 2, 64))

    assert allows(cases, workload("d", 1, 128).arguments)
    assert not allows(cases, workload("d", 1, 100).arguments)


def test_extents_that_were_always_equal_must_stay_equal() -> None:
    _, cases = norm(workload("a", 1, 64), workload("b", 8, 128), workload("c", 2, 64))
    odd = workload("d", 4, 64).arguments | {"weight": make_tensor(128)}

    assert not allows(cases, odd)


def test_dtypes_are_not_mixed_from_different_tests() -> None:
    half = DType.BFLOAT16
    _, cases = norm(workload("a", 4, 64), workload("b", 4, 64, dtype=half))

    assert len(cases) == 2
    assert allows(cases, workload("c", 4, 64, dtype=half).arguments)
    assert not allows(cases, workload("c", 4, 64, weight=make_tensor(64, dtype=half)).arguments)


def test_an_optional_argument_is_allowed_as_it_was_tested() -> None:
    _, cases = norm(workload("a", 4, 64), workload("b", 4, 64, residual=None))

    assert allows(cases, workload("c", 4, 64, residual=None).arguments)
    assert not allows(cases, workload("c", 4, 64, weight=None).arguments)


def test_a_layout_that_was_not_tested_is_refused() -> None:
    wide = make_tensor(4, 64, strides=(128, 1))
    _, cases = norm(workload("a", 4, 64))
    _, strided = norm(workload("a", 4, 64, x=wide))

    assert not allows(cases, workload("b", 4, 64, x=wide).arguments)
    assert allows(strided, workload("b", 4, 64, x=wide).arguments)


def test_numbers_are_those_tested_and_their_type_counts() -> None:
    _, cases = norm(workload("a", 4, 64), workload("b", 4, 64, eps=1e-5))

    assert allows(cases, workload("c", 4, 64, eps=5e-6).arguments)
    assert not allows(cases, workload("c", 4, 64, eps=1e-4).arguments)
    assert not allows(cases, workload("c", 4, 64, eps=True).arguments)


def test_written_arguments_must_not_overlap_where_they_did_not() -> None:
    loaded = make_problem("rotary")
    cases = derive_cases(loaded.problem, loaded.problem.workloads)
    arguments = loaded.problem.workloads[0].arguments
    alias = make_tensor(16, 64, alias_of="cos")

    assert allows(cases, arguments)
    assert allows(cases, arguments | {"sin": alias})
    same = make_tensor(16, 8, 64, alias_of="query")
    contract = Contract(outputs=(Output(),), returns_tuple=False, writes=("query",))
    square = make_problem(
        "rotary",
        contract=contract,
        workloads=(Workload(name="w", arguments=arguments | {"key": make_tensor(16, 8, 64)}),),
    )
    cases = derive_cases(square.problem, square.problem.workloads)
    assert not allows(cases, arguments | {"key": same})
