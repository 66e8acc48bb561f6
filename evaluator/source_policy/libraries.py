"""What the libraries' names are for: which a kernel may use, and which rule the others break.

torch, torch.cuda and triton are large and change with every release. So their namespaces
are lists of what is allowed or refused by name, and an unknown name is refused if it looks
like a module or a class and counts as library compute if it looks like a function.
``tests/evaluator/test_policy_libraries.py`` holds the lists against the installed versions.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from evaluator.source_policy.words import words

Verdict = tuple[str, str | None]
"""A rule and the reason, where the rule's own does not say enough."""

BUILTINS: Mapping[str, str] = {
    **dict.fromkeys(("exec", "eval"), "it runs text as code"),
    "compile": "it makes code from text",
    "__import__": "it imports past the list of allowed modules",
    "open": "a kernel reads and writes no files",
    "input": "a kernel reads no terminal",
    **dict.fromkeys(("breakpoint", "help"), "a kernel starts no debugger or pager"),
    **dict.fromkeys(("globals", "locals"), "it reaches names by text; write the name"),
    **dict.fromkeys(("vars", "getattr", "dir"), "it reaches attributes by text; write x.name"),
    **dict.fromkeys(("setattr", "delattr"), "it changes attributes by text"),
}

_STREAM = ("stream", None)
_CLOCK = ("clock", None)
_FOREIGN = ("foreign-code", None)
_PRECISION = ("precision", "it lets float32 be computed in TF32")
_EXACT: Mapping[str, Verdict] = {
    **dict.fromkeys(
        ("torch.compile", "torch.jit", "torch.fx", "torch.export"),
        ("forbidden-name", "a candidate is the kernel, not the compiler's"),
    ),
    **dict.fromkeys(
        ("torch.utils", "torch.classes", "torch.hub", "torch.package"),
        ("foreign-code", "it builds or loads code; a cuda or cpp candidate has SOURCE for that"),
    ),
    "torch.ops": ("foreign-code", "it reaches kernels that are not the candidate's"),
    "torch.get_device_module": ("alias", "it gives a module; write torch.cuda"),
    "torch.library": ("monkey-patch", "it registers kernels for the whole process"),
    "torch.overrides": ("monkey-patch", "it changes what torch functions do"),
    "torch.load": ("builtin", "it reads files and can run what it reads"),
    **dict.fromkeys(("torch.save", "torch.from_file"), ("builtin", "a kernel uses no files")),
    "torch.multiprocessing": ("thread", "it starts processes"),
    "torch.distributed": ("builtin", "it opens connections"),
    "torch.profiler": _CLOCK,
    "torch.testing": ("forbidden-name", "comparing results is the evaluator's work"),
    "torch.backends": ("forbidden-name", "it changes settings that others are measured under"),
    **dict.fromkeys(("torch.Stream", "torch.cuda.Stream", "torch.cuda.ExternalStream"), _STREAM),
    **dict.fromkeys(("torch.cuda.stream", "torch.cuda.set_stream", "torch.Event"), _STREAM),
    **dict.fromkeys(("torch.cuda.StreamContext", "torch.cuda.default_stream"), _STREAM),
    **dict.fromkeys(("torch.cuda.CUDAGraph", "torch.cuda.graph", "torch.cuda.graphs"), _STREAM),
    "torch.cuda.make_graphed_callables": _STREAM,
    "torch.cuda.Event": _CLOCK,
    **dict.fromkeys(("torch.cuda.profiler", "torch.cuda.nvtx"), _CLOCK),
    "torch.cuda.synchronize": ("stream", "it waits on the host within the measured call"),
    "triton.testing": _CLOCK,
    "triton.profiler": _CLOCK,
    "triton.knobs": ("forbidden-name", "it changes settings of the compiler"),
    "triton.runtime": (
        "forbidden-name",
        "it reaches into the compiler's run time; torch.cuda.get_device_properties tells "
        "the number of multiprocessors",
    ),
    **dict.fromkeys(
        ("triton.compiler", "triton.backends"),
        ("forbidden-name", "it reaches into the compiler"),
    ),
    "triton.autotune": ("autotune", None),
    "torch.autocast": ("precision", None),
    "torch.amp": ("precision", None),
    **dict.fromkeys(
        words(
            """
            torch.manual_seed torch.seed torch.initial_seed torch.default_generator
            torch.get_rng_state torch.set_rng_state
            """
        ),
        ("cache", "the state of the random generator lives between calls"),
    ),
    "torch.set_float32_matmul_precision": _PRECISION,
    "torch.empty_meta": ("lazy", None),
    **dict.fromkeys(
        ("functools.lru_cache", "functools.cache", "functools.cached_property"),
        ("cache", None),
    ),
    "contextlib.suppress": ("fallback", None),
    **dict.fromkeys(
        ("typing.get_type_hints", "typing.ForwardRef", "typing.evaluate_forward_ref"),
        ("builtin", "it runs annotations as code"),
    ),
}

NAMESPACES = words(
    """
    torch torch.cuda torch.nn torch.nn.functional torch.nn.init torch.special torch.linalg
    torch.fft torch.autograd torch.ops torch.ops.aten torch.version triton triton.language.core
    triton.tools triton.tools.tensor_descriptor
    triton.language triton.language.math triton.language.extra triton.language.extra.libdevice
    triton.language.extra.cuda triton.language.extra.cuda.libdevice triton.language.standard
    math typing functools itertools collections collections.abc contextlib dataclasses enum
    numpy
    """
)
"""Modules: they may be named and renamed, and handed to nobody."""

_CUDA_ALLOWED = words(
    """
    current_device current_stream device device_count device_of is_available
    get_device_properties get_device_capability get_device_name is_bf16_supported
    """
)
_TORCH_CLASSES_ALLOWED = frozenset(("Tensor", "Size", "Generator", "OutOfMemoryError"))
_TRITON_ALLOWED = words(
    """
    jit heuristics Config cdiv next_power_of_2 language constexpr_function set_allocator
    OutOfResources CompilationError __version__ autotune TensorWrapper reinterpret
    must_use_result
    """
)
_ALLOWED_WITHIN: Mapping[str, frozenset[str]] = {
    "torch.cuda": _CUDA_ALLOWED,
    "torch.autograd": frozenset(("Function",)),
    "triton": _TRITON_ALLOWED,
    "triton.tools": frozenset(),
}
_COMPUTE_NAMESPACES = frozenset(
    ("torch.nn.functional", "torch.special", "torch.linalg", "torch.fft", "torch.ops.aten")
)
_TORCH_MODULES = words(
    """
    accelerator ao autograd_function compiler contrib cpu csrc cuda_graphs distributions export
    func functional futures fx headeronly hub functorch library masked monitor mps mtia
    multiprocessing nativert nested numa onnx optim package profiler quantization return_types
    serialization signal sparse storage sys testing torch_version types utils xpu version
    backends classes overrides distributed quasirandom quantized_lstm builtins platform textwrap
    threading warnings os
    """
)
"""Modules inside torch that no kernel needs."""
_INNER_MODULES = (sys.stdlib_module_names - {"select"}) | words(
    """
    torch triton core semantic knobs ir target_info module hip autocast_mode grad_scaler
    """
)
"""Modules that the libraries happen to hold, by which one would leave what is allowed."""

ALLOCATION_AND_VIEWS = words(
    """
    empty empty_like empty_strided empty_permuted new_empty new_empty_strided new_zeros new_ones
    new_full new_tensor zeros zeros_like ones ones_like full full_like tensor as_tensor asarray
    arange scalar_tensor view view_as reshape reshape_as as_strided expand expand_as permute
    transpose t movedim swapaxes swapdims squeeze unsqueeze flatten unflatten ravel narrow
    select split chunk unbind diagonal unfold tensor_split hsplit vsplit dsplit adjoint
    view_as_real view_as_complex real imag broadcast_to broadcast_tensors broadcast_shapes
    atleast_1d atleast_2d contiguous clone detach to type float half bfloat16 double int long
    bool short char byte copy_ zero_ fill_ cpu cuda stride size dim ndimension numel nelement
    is_contiguous storage_offset element_size is_floating_point is_complex is_tensor get_device
    requires_grad_ item tolist pin_memory resize_ resolve_conj data_ptr finfo iinfo device dtype
    layout memory_format result_type is_storage promote_types can_cast no_grad inference_mode
    enable_grad is_grad_enabled is_inference_mode_enabled get_default_dtype mT mH T H typename
    contiguous_format channels_last channels_last_3d preserve_format strided pi inf nan e
    newaxis sym_int sym_max sym_min sym_float
    """
)
"""Functions of torch and methods of a tensor that make, copy, convert, reshape or describe."""

_DTYPES = words(
    """
    float double half int long short bool cfloat cdouble chalf int1 int2 int3 int4 int5 int6 int7
    int8 int16 int32 int64 uint1 uint2 uint3 uint4 uint5 uint6 uint7 uint8 uint16 uint32 uint64
    bfloat16 float16 float32 float64 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz
    float8_e8m0fnu float4_e2m1fn_x2 complex32 complex64 complex128 qint8 qint32 quint8 quint4x2
    quint2x4 sparse_coo sparse_csr bits1x8 bits2x4 bits4x2 bits8 bits16
    """
)

COMPUTE_METHODS = words(
    """
    matmul mm bmm mv dot vdot inner outer ger addmm baddbmm addbmm addmv addr tensordot einsum
    softmax log_softmax sum mean prod amax amin aminmax argmax argmin max min median mode std
    var norm logsumexp cumsum cumprod cummax cummin logcumsumexp topk sort argsort msort
    kthvalue unique bincount histc nonzero gather scatter scatter_ scatter_add scatter_add_
    scatter_reduce take scatter_reduce_ index_select index_add index_add_ index_copy_ index_put_
    index_fill_ masked_fill masked_fill_ masked_select masked_scatter_ where relu relu_ sigmoid
    sigmoid_ tanh tanh_ erf exp exp_ log log2 log1p expm1 exp2 sqrt sqrt_ rsqrt rsqrt_ sin cos
    tan pow pow_ square reciprocal abs neg sign clamp clamp_ clip round floor ceil trunc frac
    fmod remainder add add_ sub sub_ mul mul_ div div_ true_divide floor_divide addcmul addcdiv
    lerp maximum minimum fmax fmin eq ne lt le gt ge isnan isinf all any logical_and logical_or
    logical_not bitwise_and bitwise_or repeat repeat_interleave tile flip roll rot90 tril triu
    diag cross cdist renorm cholesky inverse det svd qr lu trace conv1d conv2d conv3d layer_norm
    batch_norm group_norm dropout gelu
    """
)
"""Methods of a tensor in which the library computes; the shared names of lists are not here."""

_FRAME_ATTRIBUTES = words(
    """
    f_globals f_locals f_back f_builtins f_code gi_frame gi_code cr_frame cr_code ag_frame
    ag_code tb_frame tb_next func_globals co_code mro with_traceback
    """
)
_ATTRIBUTES: Mapping[str, Verdict] = {
    **dict.fromkeys(_FRAME_ATTRIBUTES, ("dunder", None)),
    "as_subclass": ("subclass", None),
    "numpy": ("forbidden-name", "numpy's array has files and addresses; stay with the tensor"),
    **dict.fromkeys(("storage", "untyped_storage"), ("address", "use data_ptr() for a kernel")),
    **dict.fromkeys(("record_stream", "wait_stream", "record_event", "wait_event"), _STREAM),
    "share_memory_": ("thread", "it shares memory with other processes"),
    "py_impl": ("monkey-patch", "it registers kernels for the whole process"),
    **dict.fromkeys(("set_data", "set_"), ("monkey-patch", "it changes whose memory a tensor is")),
    **dict.fromkeys(("add_pre_run_hook", "module_load", "run_decompositions"), _FOREIGN),
    "apply_": ("forbidden-name", "Python is called for every element"),
}
_REGISTERS_OF_MODULES = ("register_buffer", "register_parameter", "register_module")
_HOST_SYNC = frozenset(("item", "tolist", "cpu"))


def verdict_of_name(full: str) -> Verdict | None:
    """Return the rule that the library name ``full`` breaks; None where a kernel may use it.

    Only the last part is judged: the parts before it are expressions of their own.
    """
    if full in _EXACT:
        return _EXACT[full]
    parent, _, last = full.rpartition(".")
    top = full.partition(".")[0]
    if not parent or (top not in ("torch", "triton") and last not in _INNER_MODULES):
        return None
    if full in NAMESPACES or _is_dunder(last):
        return None
    if parent in NAMESPACES and last in _INNER_MODULES:
        return "forbidden-name", "it is a module that the library happens to hold"
    if last.startswith("_") and parent != "triton.language.standard":
        return "private-name", None
    return _verdict_within(parent, last)


def verdict_of_attribute(attribute: str) -> Verdict | None:
    """Return the rule that reading ``attribute`` of any object breaks."""
    if attribute in _ATTRIBUTES:
        return _ATTRIBUTES[attribute]
    if _is_dunder(attribute):
        return "dunder", None
    if attribute.startswith("register_") and attribute not in _REGISTERS_OF_MODULES:
        return "monkey-patch", "it registers code that others will run"
    return None


def is_host_sync(method: str) -> bool:
    """Whether the method of a tensor on a GPU waits for it."""
    return method in _HOST_SYNC


def _verdict_within(parent: str, last: str) -> Verdict | None:
    if parent in _ALLOWED_WITHIN:
        reason = f"of {parent} a kernel needs no more than the policy lists"
        return None if last in _ALLOWED_WITHIN[parent] else ("forbidden-name", reason)
    if parent in _COMPUTE_NAMESPACES:
        return "library-compute", None
    match parent:
        case "torch":
            return _verdict_in_torch(last)
        case "torch.Tensor" if last in COMPUTE_METHODS:
            return "library-compute", None
        case "torch.nn" if last.islower():
            return "forbidden-name", "a kernel has no use for inner modules of torch.nn"
    return _verdict_in_language(last) if parent.startswith("triton.language") else None


def _verdict_in_torch(last: str) -> Verdict | None:
    if last.startswith(("set_", "use_")) or last in _TORCH_MODULES:
        return "forbidden-name", "settings and inner modules of torch are not the candidate's"
    if last in ALLOCATION_AND_VIEWS or last in _DTYPES or last in _TORCH_CLASSES_ALLOWED:
        return None
    if last[0].isupper():
        reason = "a kernel needs no such class"
        return None if last.endswith("Tensor") else ("forbidden-name", reason)
    return "library-compute", None


def _verdict_in_language(last: str) -> Verdict | None:
    if last == "inline_asm_elementwise":
        return "inline-asm", None
    if last == "extern_elementwise":
        return "foreign-code", "libraries other than libdevice cannot be checked"
    return None


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")
