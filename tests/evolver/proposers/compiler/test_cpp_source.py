"""Cleaning of generated C++, on kernels written as TorchInductor writes them."""

# ruff: noqa: E501 (the generated lines are as Inductor breaks them)

from __future__ import annotations

import pytest

from evolver.proposers.compiler.emitter.cpp_expression import (
    Untranslatable,
    parse_expression,
    render,
)
from evolver.proposers.compiler.emitter.cpp_prelude import with_prelude
from evolver.proposers.compiler.emitter.cpp_reductions import ParallelStyle
from evolver.proposers.compiler.emitter.cpp_source import CleanKernel, CleanStyle, clean_kernel
from evolver.proposers.compiler.emitter.cpp_types import typed

ROW_NORM = r"""
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  kernel(const at::BFloat16* in_ptr0,
                       float* out_ptr0,
                       at::BFloat16* out_ptr1,
                       const int64_t ks0)
{
    std::atomic<int> inductor_cpu_integer_div_error{0};
    #pragma omp parallel
    {
        int tid = omp_get_thread_num();
        {
            #pragma omp for
            for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(ks0); x0+=static_cast<int64_t>(1L))
            {
                {
                    float tmp_acc0 = 0;
                    for(int64_t x1=static_cast<int64_t>(0L); x1<static_cast<int64_t>(64L); x1+=static_cast<int64_t>(1L))
                    {
                        {
                            {
                                auto tmp0 = in_ptr0[static_cast<int64_t>(x1 + 64L*x0)];
                                auto tmp1 = c10::convert<float>(tmp0);
                                auto tmp2 = float(tmp1 * tmp1);
                                tmp_acc0 = tmp_acc0 + tmp2;
                            }
                        }
                    }
                    out_ptr0[static_cast<int64_t>(x0)] = tmp_acc0;
                }
                #pragma GCC ivdep
                for(int64_t x1=static_cast<int64_t>(0L); x1<static_cast<int64_t>(64L); x1+=static_cast<int64_t>(1L))
                {
                    {
                        {
                            auto tmp0 = in_ptr0[static_cast<int64_t>(x1 + 64L*x0)];
                            auto tmp2 = out_ptr0[static_cast<int64_t>(x0)];
                            auto tmp1 = c10::convert<float>(tmp0);
                            auto tmp3 = static_cast<float>(64.0);
                            auto tmp4 = tmp2 / tmp3;
                            auto tmp5 = 1 / std::sqrt(tmp4);
                            auto tmp6 = float(tmp1 * tmp5);
                            auto tmp7 = c10::convert<at::BFloat16>(tmp6);
                            out_ptr1[static_cast<int64_t>(x1 + 64L*x0)] = tmp7;
                        }
                    }
                }
            }
        }
    }
}
"""

WHOLE_SUM = r"""
extern "C"  void  kernel(const float* in_ptr0,
                       float* out_ptr0)
{
    {
        {
            float tmp_acc0 = 0;
            int max_threads = omp_get_max_threads();
            float tmp_acc0_arr[max_threads];
            for (int i = 0; i < max_threads; i++)
            {
                tmp_acc0_arr[i] = 0;
            }
            #pragma omp parallel
            {
                int tid = omp_get_thread_num();
                CascadeSumHelper<float, 4096> scalar_cascade_helper0(static_cast<int64_t>(9L));
                float tmp_acc0_local = 0;
                #pragma omp for
                for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(5000L); x0+=static_cast<int64_t>(1L))
                {
                    {
                        {
                            auto tmp0 = in_ptr0[static_cast<int64_t>(x0)];
                            tmp_acc0_local = cascade_sum_combine(tmp0, &scalar_cascade_helper0);
                        }
                    }
                }
                tmp_acc0_local = cascade_sum_final(&scalar_cascade_helper0);
                tmp_acc0_arr[tid] = tmp_acc0_local;
            }
            for (int tid = 0; tid < max_threads; tid++)
            {
                tmp_acc0 = tmp_acc0 + tmp_acc0_arr[tid];
            }
            out_ptr0[static_cast<int64_t>(0L)] = tmp_acc0;
        }
    }
}
"""

HALVES = r"""
extern "C"  void  kernel(const float* in_ptr0,
                       float* out_ptr0)
{
    {
        #pragma GCC ivdep
        for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(8L); x0+=static_cast<int64_t>(1L))
        {
            {
                {
                    auto tmp0 = x0;
                    auto tmp1 = c10::convert<int64_t>(tmp0);
                    auto tmp2 = static_cast<int64_t>(4);
                    auto tmp3 = tmp1 < tmp2;
                    auto tmp4 = [&]
                    {
                        auto tmp5 = in_ptr0[static_cast<int64_t>(4L + x0)];
                        auto tmp6 = decltype(tmp5)(-tmp5);
                        return tmp6;
                    }
                    ;
                    auto tmp7 = tmp3 ? tmp4() : static_cast<decltype(tmp4())>(0.0);
                    auto tmp8 = tmp1 >= tmp2;
                    auto tmp9 = [&]
                    {
                        auto tmp10 = in_ptr0[static_cast<int64_t>((-4L) + x0)];
                        return tmp10;
                    }
                    ;
                    auto tmp11 = tmp8 ? tmp9() : static_cast<decltype(tmp9())>(0.0);
                    auto tmp12 = tmp3 ? tmp7 : tmp11;
                    out_ptr0[static_cast<int64_t>(x0)] = tmp12;
                }
            }
        }
    }
}
"""

TWO_STORES = r"""
extern "C"  void  kernel(const float* in_ptr0,
                       float* out_ptr0,
                       float* out_ptr1)
{
    {
        #pragma GCC ivdep
        for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(8L); x0+=static_cast<int64_t>(1L))
        {
            auto tmp0 = in_ptr0[static_cast<int64_t>(x0)];
            auto tmp1 = in_ptr0[static_cast<int64_t>(7L + ((-1L)*x0))];
            out_ptr0[static_cast<int64_t>(x0)] = tmp0;
            out_ptr1[static_cast<int64_t>(x0)] = tmp1;
        }
    }
}
"""


def clean(
    text: str,
    *arguments: str,
    private: tuple[str, ...] = (),
    style: CleanStyle | None = None,
) -> CleanKernel:
    return clean_kernel(text, "f", arguments, frozenset(private), style or CleanStyle())


def row_norm(style: CleanStyle | None = None) -> CleanKernel:
    return clean(ROW_NORM, "x", "total", "out", "rows", private=("total",), style=style)


def test_nothing_of_inductor_or_torch_is_left() -> None:
    source = with_prelude(row_norm().source)
    for trace in ("inductor", "c10", "at::", "torch/", "static_cast", "tmp", "int tid"):
        assert trace not in source


def test_a_buffer_that_only_carries_a_rows_sum_becomes_a_variable() -> None:
    kernel = row_norm()
    assert [name for _, name in kernel.parameters] == ["x", "out", "rows"]
    assert kernel.kept == (0, 2, 3)
    assert "std::sqrt(sum / 64.0f)" in kernel.source


def test_a_buffer_that_others_read_is_kept() -> None:
    kernel = clean(ROW_NORM, "x", "total", "out", "rows")
    assert ("float*", "total") in kernel.parameters
    assert "total[row] = sum;" in kernel.source


def test_what_no_iteration_changes_stands_before_the_loop() -> None:
    lines = [line.strip() for line in row_norm().source.splitlines()]
    root = next(i for i, line in enumerate(lines) if "std::sqrt" in line)
    assert lines[root + 1] == "#pragma omp simd"


def test_a_row_sum_vectorises_only_where_its_order_may_change() -> None:
    in_order = CleanStyle(ParallelStyle(simd=False))
    assert "#pragma omp simd reduction(+:sum)" in row_norm().source
    assert "simd" not in row_norm(in_order).source


def test_a_loop_of_unknown_length_stays_serial_below_the_grain() -> None:
    style = CleanStyle(ParallelStyle(grain=1000))
    assert "#pragma omp parallel for if(rows * 64 > 1000)" in row_norm(style).source


def test_no_number_of_threads_and_no_partial_sums_remain_of_a_whole_reduction() -> None:
    source = clean(WHOLE_SUM, "x", "out").source
    assert "#pragma omp parallel for simd reduction(+:sum)" in source
    assert "double sum = 0.0;" in source
    assert "thread" not in source
    assert "out[0] = float(sum);" in source


def test_a_loop_over_two_halves_becomes_two_loops_without_the_question() -> None:
    source = clean(HALVES, "x", "out").source
    assert "for (int64_t i = 0; i < 4; ++i) {" in source
    assert "for (int64_t i = 4; i < 8; ++i) {" in source
    assert "?" not in source
    assert "out[i] = -x[i + 4];" in source


def test_a_mask_may_stay_in_the_loop() -> None:
    source = clean(HALVES, "x", "out", style=CleanStyle(split_masks=False)).source
    assert "out[i] = i < 4 ? -x[i + 4] : x[i - 4];" in source


def test_a_load_is_not_moved_past_a_store_that_may_change_it() -> None:
    """``out0`` may be ``x`` itself: the second load must come before the first store."""
    source = clean(TWO_STORES, "x", "x", "out").source
    assert source.index("= x[") < source.index("x[i] = ")
    assert "out[i] = x[" not in source


def test_arguments_that_are_one_tensor_become_one_parameter() -> None:
    kernel = clean(TWO_STORES, "x", "x", "out")
    assert kernel.parameters == (("float*", "x"), ("float*", "out"))


def test_a_parameter_named_like_a_keyword_gets_another_name() -> None:
    assert "float* default_" in clean(TWO_STORES, "x", "default", "out").source


def test_an_unknown_helper_is_refused_by_name() -> None:
    text = TWO_STORES.replace("= tmp0;", "= calc_bessel(tmp0);")
    with pytest.raises(Untranslatable, match="calc_bessel"):
        clean(text, "x", "a", "b")


@pytest.mark.parametrize(
    ("generated", "wanted"),
    [
        ("static_cast<float>(1e-06)", "1e-06f"),
        ("decltype(v)(1) / (decltype(v)(1) + std::exp(-v))", "1.0f / (1.0f + std::exp(-v))"),
        ("float(v + float(v * v))", "v + v * v"),
        ("(v - (v - v)) * v", "(v - (v - v)) * v"),
        ("p[static_cast<int64_t>((-64L) + x1 + 128L*x0)]", "p[x0 * 128 + x1 - 64]"),
        ("c10::convert<uint8_t>(v)", "uint8_t(int64_t(v))"),
        ("c10::convert<at::BFloat16>(v)", "to_bfloat16(v)"),
        ("c10::convert<float>(b[static_cast<int64_t>(x0)])", "to_float(b[x0])"),
        ("c10::div_floor_integer(x0, static_cast<int64_t>(8L))", "x0 / 8"),
        ("c10::div_floor_integer(n, static_cast<int64_t>(8L))", "floor_divide(n, 8)"),
        ("std::max(static_cast<int64_t>(0L), n)", "std::max<int64_t>(0, n)"),
        ("-std::numeric_limits<float>::infinity()", "-std::numeric_limits<float>::infinity()"),
    ],
)
def test_an_expression_loses_casts_that_change_nothing(generated: str, wanted: str) -> None:
    scope = {
        "v": "float",
        "n": "int64_t",
        "x0": "int64_t",
        "x1": "int64_t",
        "p": "float*",
        "b": "bfloat16*",
    }
    assert render(typed(parse_expression(generated), scope)[0]) == wanted


def test_a_module_gets_only_the_helpers_that_it_uses() -> None:
    source = with_prelude(row_norm().source)
    assert "inline bfloat16 to_bfloat16" in source
    assert "fast_exp" not in source
    assert "#include <limits>" not in source
