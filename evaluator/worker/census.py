"""What one call runs: ATen ops, native functions, Triton launches, kernels on the device.

Facts for the supervisor, which judges them. Ops come from a dispatch mode, launches from
Triton's launch hook, calls of native functions from wrappers that exist only meanwhile, and
device kernels from torch's profiler (CUPTI), which may be refused in a sandbox: the reply
then says why. Nothing stays installed, so that what is timed later runs as ever.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.utils._python_dispatch import TorchDispatchMode

from .calls import Target
from .inputs import generate
from .native import NativeLibrary

_PROFILER_ATTEMPTS = 2
"""CUPTI may still be starting while the first profile is taken, which then is empty."""
_GRAPH_LAUNCH = "cudaGraphLaunch"
_HOST_CALLS = 5
_HOST_SECONDS = 0.5
"""So often, or so long, is a call on the host watched: the first pays for threads and pages."""


@dataclass
class Entry:
    """How often something of one name ran."""

    name: str
    count: int = 0
    ns: float = 0.0
    """Time inside: the device's for kernels, the host's for ops and native functions, the least
    of several calls."""
    bytes: int = 0
    """Of the tensors that an op returned."""
    flops: int = 0
    """Of a product: two for each multiplication with its addition."""


@dataclass
class Facts:
    """One call, as each observer saw it."""

    ops: list[Entry] = field(default_factory=list)
    native: list[Entry] = field(default_factory=list)
    launches: list[Entry] = field(default_factory=list)
    kernels: list[Entry] = field(default_factory=list)
    hooked: bool = True
    """Whether Triton's launches could be watched."""
    profiled: bool = False
    profiler_error: str = ""
    streams: int = 0
    """Distinct streams on which the device worked, or launches away from the caller's."""
    graph_launches: int = 0
    compiled_frames: int = 0
    """Frames that torch.compile has translated in this process."""


class Log:
    """Entries by name, in the order of their first appearance."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}

    def add(self, name: str, *, ns: float = 0.0, size: int = 0, flops: int = 0) -> None:
        """Count one more."""
        entry = self._entries.setdefault(name, Entry(name))
        entry.count += 1
        entry.ns += ns
        entry.bytes += size
        entry.flops += flops

    def entries(self) -> list[Entry]:
        """What was counted."""
        return list(self._entries.values())


def take_census(
    target: Target,
    module: dict[str, Any],
    arguments: Mapping[str, Any],
    *,
    seed: int,
    writes: Sequence[str],
    device: str,
    profile: bool,
) -> dict[str, Any]:
    """Call the target on the inputs of ``seed``, once per observer, and return what was seen.

    Arguments named in ``writes`` are restored before every call.
    """
    values = generate(arguments, seed=seed, device=device)
    saved = [(values[name], values[name].clone()) for name in writes]
    call = _Call(target.bind(module, values), saved, on_gpu=device.startswith("cuda"))
    facts = Facts()
    facts.ops, facts.native = _watch_host(call, module)
    if call.on_gpu:
        _watch_device(call, facts, profile=profile)
    facts.compiled_frames = _compiled_frames()
    return asdict(facts)


@dataclass
class _Call:
    """A bound call that can be made again and again."""

    bound: Callable[[], Any]
    saved: Sequence[tuple[torch.Tensor, torch.Tensor]]
    on_gpu: bool

    def restore(self) -> None:
        """Undo what earlier calls wrote; not to be observed."""
        for live, pristine in self.saved:
            live.copy_(pristine)
        self.wait()

    def wait(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()

    def __call__(self) -> None:
        self.bound()
        self.wait()


class DispatchLog(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Logs every ATen op that reaches the dispatcher."""

    def __init__(self, log: Log) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._log = log

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch would import dynamo for it, which takes a second; nothing is compiled here."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        started = time.perf_counter_ns()
        returned = func(*args, **(kwargs or {}))
        taken = time.perf_counter_ns() - started
        name = func._schema.name
        try:
            flops = _flops(name.removeprefix("aten::"), args, returned)
        except (AttributeError, IndexError, TypeError, ZeroDivisionError):
            flops = 0  # arguments of another form than ours: no reason to fail a call
        self._log.add(name, ns=taken, size=_bytes(returned), flops=flops)
        return returned


def _bytes(returned: Any) -> int:
    items = returned if isinstance(returned, (tuple, list)) else (returned,)
    tensors = [t for t in items if isinstance(t, torch.Tensor)]
    return sum(t.numel() * t.element_size() for t in tensors)


def _flops(op: str, args: Sequence[Any], returned: Any) -> int:
    """What a product, a convolution or an attention multiplies and adds; 0 for other ops.

    ``torch.utils.flop_counter`` knows more, and takes a quarter of a second to import.
    """
    if op in ("mm", "bmm"):
        return int(2 * returned.numel() * args[0].shape[-1])
    if op in ("addmm", "baddbmm"):
        return int(2 * returned.numel() * args[1].shape[-1])
    if op in ("convolution", "_convolution"):
        kernels, transposed = args[1], bool(args[6])
        if transposed:
            return int(2 * args[0].numel() // args[0].shape[1] * kernels.numel())
        return int(2 * returned.numel() * kernels.numel() // kernels.shape[0])
    if op.startswith("_scaled_dot_product") and not op.endswith("_backward"):
        query, key, value = args[:3]
        pairs = query.numel() // query.shape[-1] * key.shape[-2]
        return int(2 * pairs * (query.shape[-1] + value.shape[-1]))
    return 0


def _watch_host(call: _Call, module: dict[str, Any]) -> tuple[list[Entry], list[Entry]]:
    """Ops and native functions; on a GPU, whose time the host does not tell, of one call."""
    ops: dict[str, Entry] = {}
    native: dict[str, Entry] = {}
    started = time.monotonic()
    for _ in range(1 if call.on_gpu else _HOST_CALLS):
        new_ops, new_native = Log(), Log()
        call.restore()
        with _watched_functions(module, new_native), DispatchLog(new_ops):
            call()
        _merge(ops, new_ops)
        _merge(native, new_native)
        if time.monotonic() - started > _HOST_SECONDS:
            break
    return list(ops.values()), list(native.values())


def _merge(known: dict[str, Entry], log: Log) -> None:
    """Add what another call ran: whatever some call did counts, at its shortest."""
    for new in log.entries():
        old = known.setdefault(new.name, new)
        old.count, old.bytes = max(old.count, new.count), max(old.bytes, new.bytes)
        old.flops = max(old.flops, new.flops)
        old.ns = min(old.ns, new.ns)


@contextmanager
def _watched_functions(module: dict[str, Any], log: Log) -> Iterator[None]:
    """Count the calls of native functions, also of those that the module keeps under a name."""
    library = module.get("native")
    if not isinstance(library, NativeLibrary):
        yield
        return
    watched = {id(f): _watched(name, f, log) for name, f in vars(library).items()}
    before = []
    for holder in (vars(library), module):
        for name, value in list(holder.items()):
            if id(value) in watched:
                before.append((holder, name, value))
                holder[name] = watched[id(value)]
    try:
        yield
    finally:
        for holder, name, value in before:
            holder[name] = value


def _watched(name: str, function: Callable[..., None], log: Log) -> Callable[..., None]:
    def call(*arguments: Any) -> None:
        started = time.perf_counter_ns()
        function(*arguments)
        log.add(name, ns=time.perf_counter_ns() - started)

    return call


def _watch_device(call: _Call, facts: Facts, *, profile: bool) -> None:
    """Fill in launches and, with ``profile``, the kernels of the very same call."""
    call.restore()
    if not profile:
        _watch_launches(call, facts)
        return
    try:
        for _ in range(_PROFILER_ATTEMPTS):
            call.restore()
            _watch_profiled(call, facts)
            if facts.kernels:
                break
        facts.profiled = bool(facts.kernels)
        facts.profiler_error = "" if facts.profiled else "the profiler saw no kernel"
    except Exception as error:  # if it was the call that failed, it does so again below
        facts.profiler_error = str(error) or type(error).__name__
        call.restore()
        _watch_launches(call, facts)


def _watch_launches(call: _Call, facts: Facts) -> None:
    log = Log()
    here = torch.cuda.current_stream().cuda_stream
    streams = {here}

    def enter(metadata: Any) -> None:
        launch = metadata.get()
        log.add(str(launch.get("name")))
        streams.add(launch.get("stream", here))

    with _launch_hook(enter) as facts.hooked:
        call()
    facts.launches, facts.streams = log.entries(), len(streams)


def _watch_profiled(call: _Call, facts: Facts) -> None:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA], acc_events=False) as profiler:
        _watch_launches(call, facts)
    kernels: dict[str, Entry] = {}
    streams = set()
    facts.graph_launches = 0
    for event in profiler.events() or ():
        if event.device_type != DeviceType.CUDA:
            facts.graph_launches += event.name.startswith(_GRAPH_LAUNCH)
        elif not getattr(event, "is_user_annotation", False):
            entry = kernels.setdefault(event.name, Entry(event.name))
            entry.count += 1
            entry.ns += float(event.time_range.elapsed_us()) * 1e3
            streams.add(event.device_resource_id)
    facts.kernels, facts.streams = list(kernels.values()), max(facts.streams, len(streams))


@contextmanager
def _launch_hook(enter: Callable[[Any], None]) -> Iterator[bool]:
    """Have Triton call ``enter`` before each launch; yields whether it can.

    ``triton.knobs`` exists since 3.4; what does not use Triton launches nothing through it.
    """
    if "triton" not in sys.modules:
        yield True
        return
    knobs = getattr(sys.modules["triton"], "knobs", None)
    chain: Any = getattr(getattr(knobs, "runtime", None), "launch_enter_hook", None)
    if not hasattr(chain, "add") or not hasattr(chain, "remove"):
        yield False
        return
    chain.add(enter)
    try:
        yield True
    finally:
        chain.remove(enter)


def _compiled_frames() -> int:
    """How many frames dynamo has translated, without importing it."""
    utils = sys.modules.get("torch._dynamo.utils")
    frames = getattr(utils, "counters", {}).get("frames", {})
    return int(frames.get("total", 0))
