"""What single C++ operators may do, and what they must leave alone."""

from __future__ import annotations

import pytest

from evolver.proposers.mutate.cpp_fuse import fuse_options
from evolver.proposers.mutate.cpp_loops import prefetch_options, tile_options, unroll_options
from evolver.proposers.mutate.cpp_openmp import (
    collapse_options,
    schedule_options,
    simd_options,
    threads_options,
)
from evolver.proposers.mutate.cpp_promises import compiler_options, pointer_options
from evolver.proposers.mutate.cpp_source import parse_cpp
from tests.evolver.proposers.mutate.parents import EMITTED_CPP, RMS_NORM_CPP, SCALE_CPP

PER_OPERATOR = EMITTED_CPP["rms_norm, a loop per operator"]


def descriptions(options) -> list[str]:
    return [o.description for o in options]


def build(options, start: str) -> str:
    return next(o for o in options if o.description.startswith(start)).build()


def loop(body: str, before: str = "") -> str:
    return (
        'SOURCE = r"""\nextern "C" void f(const float* x, const int64_t* at, float* out, int64_t n)'
        f' {{\n    {before}\n    for (int64_t i = 0; i < n; ++i) {{ {body} }}\n}}\n"""\n'
    )


def test_everything_but_the_edit_stays_as_it_was() -> None:
    child = build(schedule_options(RMS_NORM_CPP), "schedule(guided)")
    old, new = RMS_NORM_CPP.splitlines(), child.splitlines()
    changed = [pair for pair in zip(old, new, strict=True) if pair[0] != pair[1]]
    assert changed == [
        ("    #pragma omp parallel for", "    #pragma omp parallel for schedule(guided)")
    ]


def test_a_schedule_replaces_the_one_before() -> None:
    child = build(schedule_options(SCALE_CPP), "schedule(dynamic, 8)")
    assert "#pragma omp for schedule(dynamic, 8)\n" in child
    assert "schedule(static)" not in child


def test_threads_may_be_bounded_or_depend_on_the_work() -> None:
    assert "parallel for num_threads(4)\n" in build(threads_options(RMS_NORM_CPP), "num_threads(4)")
    child = build(threads_options(RMS_NORM_CPP), "parallel only if rows > 256")
    assert "#pragma omp parallel for if(rows > 256)\n" in child


def test_threads_are_left_alone_where_buffers_may_depend_on_them() -> None:
    source = SCALE_CPP.replace(
        "    {\n        #pragma", "    {\n        int t = omp_get_thread_num();\n        #pragma", 1
    )
    assert threads_options(source) == []


def test_a_perfect_nest_is_collapsed_and_opened_again() -> None:
    child = build(collapse_options(SCALE_CPP), "collapse(2)")
    assert "#pragma omp for schedule(static) collapse(2)\n" in child
    assert descriptions(collapse_options(child))[0].startswith("no collapse")


def test_a_nest_with_work_between_its_loops_is_not_collapsed() -> None:
    assert collapse_options(RMS_NORM_CPP) == []


def test_a_sum_is_vectorised_as_a_reduction() -> None:
    child = build(simd_options(RMS_NORM_CPP), "simd of length 8")
    assert "        #pragma omp simd simdlen(8) reduction(+: total)\n        for (int64_t" in child


def test_a_vectorised_loop_loses_hints_that_openmp_does_not_take() -> None:
    last = [o for o in simd_options(RMS_NORM_CPP) if o.description.startswith("simd on")][-1]
    assert "ivdep" not in last.build()


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("out[i] = out[i - 1] + x[i];", "reads what an earlier iteration wrote"),
        ("out[at[i]] = x[i];", "scatters"),
        ("out[i / 2] = x[i];", "writes one element twice"),
        ("out[0] += x[i];", "accumulates in memory"),
        ("if (x[i] > 0) break; out[i] = x[i];", "ends early"),
        ("best = x[i] > best ? x[i] : best;", "is no reduction that is known"),
        ("total += x[i]; out[i] = total;", "needs every partial sum"),
        ("push(&out[i], x[i]);", "gives an address away"),
        ("*p++ = x[i];", "walks a pointer"),
    ],
)
def test_a_loop_whose_iterations_depend_on_each_other_is_not_vectorised(body, why) -> None:
    assert simd_options(loop(body, "float total = 0, best = 0; float* p = out;")) == [], why


@pytest.mark.parametrize(
    ("body", "clause"),
    [
        ("total = total + x[i];", "reduction(+: total)"),
        ("total *= x[i];", "reduction(*: total)"),
        ("total = std::max(total, x[i]);", "reduction(max: total)"),
    ],
)
def test_reductions_are_recognised(body, clause) -> None:
    assert clause in build(simd_options(loop(body, "float total = 0;")), "simd on")


def test_a_loop_may_index_through_a_variable_of_its_own() -> None:
    assert simd_options(loop("int64_t k = 2 * i + 1; float v = x[k]; out[k] = v;"))


def test_unrolling_replaces_the_factor_and_can_be_undone() -> None:
    once = build(unroll_options(RMS_NORM_CPP), "unroll the loop over column")
    twice = build(unroll_options(once), "unroll the loop over column")
    assert once.count("#pragma GCC unroll") == twice.count("#pragma GCC unroll") == 1
    assert build(unroll_options(once), "no unrolling") == RMS_NORM_CPP


def test_a_tiled_loop_visits_the_same_range_and_is_not_tiled_again() -> None:
    child = build(tile_options(SCALE_CPP), "tile the loop over x1")
    assert "x1 < std::min<int64_t>(x1_tile + 16, columns); ++x1)" in child
    assert child.count("#include <algorithm>") == 1
    assert not any("x1" in d for d in descriptions(tile_options(child)))


def test_a_tiled_loop_stays_vectorised_inside_and_shared_out_outside() -> None:
    source = build(simd_options(SCALE_CPP), "simd of length 8 on the loop over x1")
    child = build(tile_options(source), "tile the loop over x1")
    lines = [line.strip() for line in child.splitlines()]
    tiles = next(i for i, line in enumerate(lines) if line.startswith("for (int64_t x1_tile"))
    assert lines[tiles + 1] == "#pragma omp simd simdlen(8)"
    assert lines[tiles + 2].startswith("for (int64_t x1 = x1_tile")
    assert "collapse(2)" in build(collapse_options(child), "collapse(2)")


def test_a_prefetch_asks_for_the_next_row_once() -> None:
    child = build(prefetch_options(RMS_NORM_CPP), "prefetch x 2 ahead")
    assert "__builtin_prefetch(&x[(row + 2) * columns + 0]);" in child
    assert prefetch_options(child) == []


def test_a_compiler_option_is_added_once_and_taken_away() -> None:
    child = build(compiler_options(SCALE_CPP), 'with GCC optimize("unroll-loops")')
    assert child.count('#pragma GCC optimize("unroll-loops")') == 1
    assert build(compiler_options(child), 'without GCC optimize("unroll-loops")') == SCALE_CPP


def test_pointers_are_restrict_only_where_outputs_are_the_wrappers_own() -> None:
    child = build(pointer_options(RMS_NORM_CPP), "__restrict__")
    assert "const float* __restrict__ weight, float* __restrict__ out" in child
    in_place = RMS_NORM_CPP.replace("out = torch.empty_like(x)", "out = x")
    assert pointer_options(in_place) == []


def test_only_an_allocated_output_is_said_to_be_aligned() -> None:
    options = [d for d in descriptions(pointer_options(RMS_NORM_CPP)) if "aligned" in d]
    assert options == ["out is aligned to 64 bytes in rms_norm_kernel"]
    sliced = RMS_NORM_CPP.replace("torch.empty_like(x)", "torch.empty_like(x)[1:]")
    assert pointer_options(sliced) == []


def test_broken_cpp_is_left_alone() -> None:
    assert parse_cpp('SOURCE = r"""void f( { for (;;"""\n') is None


def test_cpp_with_escapes_comes_back_as_the_same_text() -> None:
    source = (
        'SOURCE = "// a \\"quoted\\" word\\n'
        'void f(long n) {\\n  for (long i = 0; i < n; ++i) {}\\n}\\n"\n'
    )
    child = build(unroll_options(source), "unroll")
    names: dict[str, str] = {}
    exec(child, names)
    assert '// a "quoted" word\n' in names["SOURCE"]
    assert "#pragma GCC unroll" in names["SOURCE"]


def test_loops_over_the_same_rows_become_one_step_by_step() -> None:
    once = fuse_options(PER_OPERATOR)[0].build()
    twice = fuse_options(once)[0].build()
    assert [s.count("#pragma omp for\n") for s in (PER_OPERATOR, once, twice)] == [3, 2, 1]
    assert fuse_options(twice) == []


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("const float t2 = out0[row *", "const float t2 = out0[(row + 1) *", "reads another row"),
        ("const float t2 = out0[row * std::max<int64_t>(1, x_size1) + col]",
         "const float t2 = out0[row * std::max<int64_t>(1, x_size1) + col + 1]",
         "reads beyond its row"),
        ("buffer = torch.empty((rows, 1), dtype=torch.float32)", "buffer = out0[:, :1]",
         "overlaps what the loop before writes"),
        ("row = 0; row < rows; ++row) {\n            float sum",
         "row = 1; row < rows; ++row) {\n            float sum",
         "goes over other rows"),
    ],
)  # fmt: skip
def test_loops_that_meet_in_memory_otherwise_stay_apart(old, new, why) -> None:
    assert old in PER_OPERATOR
    assert not any(
        "line 19" in d for d in descriptions(fuse_options(PER_OPERATOR.replace(old, new)))
    ), why
