"""What kind of code a problem is, and which other problems are nearly the same; pure.

Families of operations are read from the reference's AST by name, so that what a reference
calls decides, not how it spells it. The skeleton is the reference without what an editor may
change and mean the same: names, numbers, text, annotations. It errs towards equality, since it
decides what must not be told.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Sequence

from evaluator.candidate import BackendName
from evaluator.problem import LoadedProblem, sha256_text
from evaluator.workload import Workload
from evolver.library.entry import Features, Identity

FAMILIES: dict[str, frozenset[str]] = {
    family: frozenset(names.split())
    for family, names in {
        "product": "matmul mm bmm addmm baddbmm einsum linear Linear dot mv tensordot outer inner",
        "convolution": "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d "
        "Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d unfold",
        "attention": "scaled_dot_product_attention MultiheadAttention",
        "norm": "layer_norm rms_norm batch_norm group_norm instance_norm normalize LayerNorm "
        "RMSNorm BatchNorm1d BatchNorm2d BatchNorm3d GroupNorm InstanceNorm1d InstanceNorm2d "
        "InstanceNorm3d rsqrt",
        "softmax": "softmax log_softmax softmin Softmax LogSoftmax logsumexp",
        "reduction": "sum mean prod amax amin max min var std norm any all nansum var_mean "
        "std_mean argmax argmin count_nonzero",
        "scan": "cumsum cumprod cummax cummin logcumsumexp flip",
        "sort": "topk sort argsort kthvalue unique median searchsorted bucketize",
        "gather": "gather index_select take take_along_dim embedding Embedding EmbeddingBag "
        "index_put scatter scatter_ scatter_add scatter_add_ index_add index_add_ masked_fill "
        "masked_fill_ masked_select where one_hot repeat_interleave bincount",
        "pooling": "max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d MaxPool1d "
        "MaxPool2d MaxPool3d AvgPool1d AvgPool2d AvgPool3d adaptive_avg_pool1d "
        "adaptive_avg_pool2d AdaptiveAvgPool1d AdaptiveAvgPool2d interpolate Upsample",
        "activation": "relu ReLU gelu GELU silu SiLU sigmoid Sigmoid tanh Tanh elu ELU selu SELU "
        "leaky_relu LeakyReLU hardtanh Hardtanh hardswish Hardswish hardsigmoid mish Mish softplus "
        "Softplus softsign glu GLU swish relu6 ReLU6 prelu PReLU logsigmoid",
        "loss": "cross_entropy mse_loss l1_loss smooth_l1_loss kl_div nll_loss huber_loss "
        "binary_cross_entropy cosine_similarity CrossEntropyLoss MSELoss KLDivLoss HuberLoss "
        "TripletMarginLoss hinge_embedding_loss cosine_embedding_loss triplet_margin_loss",
        "recurrence": "LSTM GRU RNN LSTMCell GRUCell RNNCell",
        "elementwise": "exp log sqrt pow abs clamp clip sin cos reciprocal square floor round erf "
        "exp2 log2 log1p sign maximum minimum add sub mul div addcmul addcdiv lerp",
        "movement": "transpose permute contiguous reshape view flatten cat stack chunk split "
        "expand repeat roll pad copy_ narrow unbind",
        "random": "rand randn randint dropout Dropout bernoulli multinomial",
    }.items()
}
_FAMILY_OF = {name: family for family, names in FAMILIES.items() for name in names}


def features_of(loaded: LoadedProblem, backend: BackendName, device: str) -> Features:
    """Return the features of a problem on ``device``; held-out workloads do not count."""
    shown = [w for w in loaded.problem.workloads if not w.held_out] or loaded.problem.workloads[:1]
    return Features(
        families=families_of(loaded.reference_source),
        dtypes=frozenset(t.dtype.value for w in shown for t in w.tensors.values()),
        size_log2=_mean([math.log2(max(1, w.total_bytes)) for w in shown]),
        row_log2=_mean([math.log2(max(1, _row(w))) for w in shown]),
        backend=backend,
        device=device,
    )


def identity_of(loaded: LoadedProblem) -> Identity:
    """Return by what a problem is known again."""
    problem = loaded.problem
    return Identity(
        problem_id=problem.id,
        repository=problem.origin.repository,
        target=problem.origin.target,
        skeleton=skeleton_of(loaded.reference_source),
    )


def families_of(reference: str) -> frozenset[str]:
    """Return the families of operations that a reference calls or spells as operators."""
    found = {_FAMILY_OF[name] for name in _called(ast.parse(reference)) if name in _FAMILY_OF}
    return frozenset(found or {"elementwise"})


def skeleton_of(reference: str) -> str:
    """Return the hash of a reference without names, numbers, text and annotations.

    Attributes count, since they name what is computed.
    """
    tree = _Skeleton().generic_visit(ast.parse(reference))
    return sha256_text(ast.unparse(tree))  # not the dump: its form changes with Python


def similarity(one: Features, other: Features) -> float:
    """Return how far what helped one may help the other, in [0, 1].

    Nothing where no family of operations is shared, or the language differs.
    """
    kinds = _overlap(one.families, other.families)
    if kinds == 0 or one.backend is not other.backend:
        return 0.0
    size = 2.0 ** (-abs(one.size_log2 - other.size_log2) / 4)
    row = 2.0 ** (-abs(one.row_log2 - other.row_log2) / 4)
    types = _overlap(one.dtypes, other.dtypes) if one.dtypes | other.dtypes else 1.0
    device = 1.0 if one.device == other.device else 0.5
    return kinds * device * float(0.4 + 0.2 * size + 0.2 * row + 0.2 * types)


def _called(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(name)) | ast.Call(func=ast.Attribute(attr=name)):
                yield name
            case ast.BinOp(op=ast.MatMult()):
                yield "matmul"
            case ast.BinOp(op=ast.Mult() | ast.Add() | ast.Sub() | ast.Div() | ast.Pow()):
                yield "mul"


def _row(workload: Workload) -> int:
    """The last extent of the largest tensor."""
    largest = max(workload.tensors.values(), key=lambda t: t.numel, default=None)
    return largest.shape[-1] if largest is not None and largest.shape else 1


def _overlap(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / max(1, len(one | other))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


class _Skeleton(ast.NodeTransformer):
    """Leaves what is computed, and takes what it is called."""

    def visit(self, node: ast.AST) -> ast.AST | None:
        """Drop imports and bare constants, annotations and docstrings among them."""
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Expr(ast.Constant()):
                return None
            case ast.AnnAssign(target, _, value):
                return self.visit(ast.Assign([target], value, lineno=0)) if value else None
            case ast.Constant() | ast.JoinedStr() | ast.UnaryOp(ast.USub(), ast.Constant()):
                return ast.Constant(0)
            case ast.Name():
                node.id = "_"
            case ast.arg():
                node.arg, node.annotation = "_", None
            case ast.FunctionDef():
                node.name, node.returns, node.decorator_list = "_", None, []
            case ast.ClassDef():
                node.name = "_"
        return self.generic_visit(node)
