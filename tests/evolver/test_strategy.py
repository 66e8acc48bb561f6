"""The strategy of a candidate, read from compilers', mutants' and people's code."""

from __future__ import annotations

import ast
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.backends import Language
from evolver.proposers.mutate.triton_grid import grid_options
from evolver.proposers.mutate.triton_one_pass import one_pass_options
from evolver.proposers.mutate.triton_split import split_options
from evolver.strategy import Strategy, strategy_in
from evolver.strategy_kinds import STRATEGIES, Grid, Launches, Reduction
from tests import samples
from tests.evolver.proposers.mutate import parents
from tests.real_repos import real_repo

TRITON_TABLE = {
    "a row per program": (samples.RMS_NORM_TRITON, "fused, single block, tiled"),
    "rms_norm": (parents.TRITON_PARENTS["rms_norm"], "fused, two pass, tiled"),
    "silu": (parents.TRITON_PARENTS["silu"], "fused, tiled"),
    "a helper reduces": (parents.TRITON_PARENTS["row_max"], "fused, single block, tiled"),
    "inductor": (parents.EMITTED_TRITON["rms_norm"], "fused, two pass, tiled"),
    "inductor, a kernel per operator": (
        parents.EMITTED_TRITON["rms_norm, a kernel per operator"],
        "split, looped, tiled",
    ),
    "inductor, one kernel of two by shape": (
        parents.EMITTED_TRITON["rms_norm, by shape"],
        "fused, two pass, tiled",
    ),
    "inductor, softmax": (parents.EMITTED_TRITON["softmax"], "fused, two pass, tiled"),
    "inductor, online": (parents.EMITTED_TRITON["softmax, online"], "fused, online, tiled"),
    "inductor, around topk": (parents.EMITTED_TRITON["route"], "split, tiled"),
    "two kernels": (parents.GATED_TRITON, "split, tiled"),
}
NATIVE_TABLE = {
    "cuda": (samples.RMS_NORM_CUDA, Language.CUDA, "fused, two pass, tiled"),
    "openmp": (samples.RMS_NORM_CPP, Language.CPP, "fused, two pass, tiled, vectorised"),
    "rms_norm": (parents.CPP_PARENTS["rms_norm"], Language.CPP, "fused, two pass, tiled"),
    "scale": (parents.CPP_PARENTS["scale"], Language.CPP, "fused, tiled"),
    "inductor": (
        parents.EMITTED_CPP["rms_norm"],
        Language.CPP,
        "fused, two pass, tiled, vectorised",
    ),
    "inductor, a loop per operator": (
        parents.EMITTED_CPP["softmax, a loop per operator"],
        Language.CPP,
        "split, looped, tiled, vectorised",
    ),
}
REAL_TABLE = {
    "liger-kernel/liger_kernel/ops/swiglu.py": "fused, tiled",
    "liger-kernel/liger_kernel/ops/rope.py": "fused, tiled",
    "liger-kernel/liger_kernel/ops/layer_norm.py": "fused, single block, chunked",
    "liger-kernel/liger_kernel/ops/softmax.py": "fused, online, tiled",
    "liger-kernel/liger_kernel/ops/cross_entropy.py": "fused, online, tiled",
    "liger-kernel/liger_kernel/ops/sparsemax.py": "fused, two pass, tiled",
    "lmdeploy/lmdeploy/pytorch/kernels/cuda/activation.py": "fused, persistent",
    "lmdeploy/lmdeploy/pytorch/kernels/cuda/flashattention.py": (
        "fused, online, tiled, tensor cores"
    ),
    "lmdeploy/lmdeploy/pytorch/kernels/cuda/fused_lora.py": "fused, split row, tiled, tensor cores",
    "lmdeploy/lmdeploy/pytorch/kernels/cuda/moe/route_noaux_tc.py": "fused, single block, tiled",
    "sglang/sglang/kernels/ops/attention/decode_attention.py": (
        "split, split row, tiled, tensor cores"
    ),
    "sglang/sglang/kernels/ops/attention/prefill_attention.py": (
        "fused, online, tiled, tensor cores"
    ),
    "sglang/sglang/kernels/ops/gemm/int8_kernel.py": "fused, looped, tiled, tensor cores",
    "sglang/sglang/kernels/ops/sampling/softcap_row_argmax.py": "fused, looped, tiled",
}


def read(source: str, language: Language = Language.TRITON) -> Strategy:
    return strategy_in(ast.parse(source), language)


@pytest.mark.parametrize("name", TRITON_TABLE)
def test_a_triton_kernels_strategy_is_told(name: str) -> None:
    source, expected = TRITON_TABLE[name]
    assert str(read(source)) == expected


@pytest.mark.parametrize("name", NATIVE_TABLE)
def test_a_native_kernels_strategy_is_told(name: str) -> None:
    source, language, expected = NATIVE_TABLE[name]
    assert str(read(source, language)) == expected


@pytest.mark.real
@pytest.mark.parametrize("path", REAL_TABLE)
def test_the_strategy_of_kernels_that_people_wrote_is_told(path: str) -> None:
    repo, _, inside = path.partition("/")
    assert str(read((real_repo(repo) / inside).read_text())) == REAL_TABLE[path]


def test_rewrites_that_change_the_structure_change_the_strategy() -> None:
    silu = parents.TRITON_PARENTS["silu"]
    grids = [(o.description, read(o.build()).grid) for o in grid_options(silu)]
    assert {grid for text, grid in grids if "persistent" in text} == {Grid.PERSISTENT}
    assert {grid for text, grid in grids if "persistent" not in text} == {Grid.CHUNKED}
    softmax = parents.EMITTED_TRITON["softmax, online"]
    per_operator = parents.EMITTED_TRITON["rms_norm, a kernel per operator"]
    assert {read(o.build()).reduction for o in one_pass_options(softmax)} == {
        Reduction.SINGLE_BLOCK
    }
    shared_out = [read(o.build()) for o in split_options(per_operator)]
    assert {(s.launches, s.reduction) for s in shared_out} == {(Launches.SPLIT, Reduction.SPLIT)}


CUDA_FORMS = {
    "float a[4]; for (int i = 0; i < n; ++i) for (int j = 0; j < 4; ++j) a[j] += x[i * 4 + j];": (
        Reduction.LOOPED
    ),
    "for (int i = threadIdx.x; i < n; i += 32) { float m = fmaxf(hi, x[i]); "
    "sum = sum * expf(hi - m) + expf(x[i] - m); hi = fmaxf(hi, x[i]); }": Reduction.ONLINE,
    "float v = x[threadIdx.x]; v += __shfl_xor_sync(~0u, v, 16); out[0] = v;": (
        Reduction.SINGLE_BLOCK
    ),
    "atomicAdd(out, x[threadIdx.x]);": Reduction.SPLIT,
    "for (int i = 0; i < n; ++i) { const float v = x[i]; out[i] = v * 2; count += 1; }": (
        Reduction.NONE
    ),
}


@pytest.mark.parametrize("body", CUDA_FORMS)
def test_the_form_of_a_cuda_reduction_is_told(body: str) -> None:
    kernel = f"__global__ void k(float* x, float* out, int n) {{ {body} }}"
    source = f'SOURCE = r"""{kernel}"""\ndef f(x):\n    native.k(x)\n'
    assert read(source, Language.CUDA).reduction is CUDA_FORMS[body]


def test_a_cuda_loop_over_the_grid_is_persistent_and_mma_is_a_tensor_core() -> None:
    loop = "for (int t = blockIdx.x; t < n; t += gridDim.x) wgmma_fence(x[t]);"
    source = f'SOURCE = "__global__ void k(float* x, int n) {{ {loop} }}"\n'
    found = read(source, Language.CUDA)
    assert found.grid is Grid.PERSISTENT
    assert found.tensor_cores


CPP_PIECES = [*'(){}[];x="#', "for", "+=", "//", "<<<", "if", "while"]
SOURCES = [source for source, _ in TRITON_TABLE.values()]


@given(st.sampled_from(SOURCES), st.randoms(use_true_random=False))
def test_no_module_that_parses_is_too_strange(source: str, rng: random.Random) -> None:
    tree = ast.parse(source)
    for node in list(ast.walk(tree)):
        body = getattr(node, "body", None)
        if isinstance(body, list) and rng.random() < 0.5:
            node.body = rng.choices(body, k=rng.randrange(1, len(body) + 2))  # type: ignore[attr-defined]
    assert isinstance(strategy_in(tree, Language.TRITON), Strategy)


@given(st.text() | st.lists(st.sampled_from(CPP_PIECES)).map(" ".join))
def test_no_text_is_too_strange_for_cpp(text: str) -> None:
    tree = ast.parse(f"SOURCE = {text!r}")
    for language in (Language.CPP, Language.CUDA):
        assert strategy_in(tree, language) == strategy_in(tree, language)


def test_nesting_beyond_the_stack_is_the_plainest_strategy() -> None:
    many = "def f(x):\n" + "    if x:\n        return x\n" * 3000
    assert read(many) == Strategy()


def test_strategies_are_few() -> None:
    assert STRATEGIES < 512
