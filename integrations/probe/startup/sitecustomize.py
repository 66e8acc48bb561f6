"""Records a profiler trace of any Python command, from the outside, once it is warm.

Python imports this before the command's own code. It waits for torch to be imported, then
watches steps: calls of the function that ``KSMITH_PROFILE_STEP`` names, else outermost calls
of an ``nn.Module``. After some steps it records a few, with stacks and shapes, and writes one
trace a process. Nothing of the command is changed, and no failure here reaches it.

    KSMITH_PROFILE_OUT     folder for PID.json.gz and PID.status (JSON)
    KSMITH_PROFILE_WARMUP  steps to let pass
    KSMITH_PROFILE_STEPS   steps to record
    KSMITH_PROFILE_STEP    path/to/file.py::qualname, or nothing
    KSMITH_PROFILE_OWN     1: the command profiles itself; only add stacks and shapes to that

Where ``KSMITH_CAPTURE`` is set, ``capturing.py`` beside this watches one function's calls.
"""

from __future__ import annotations

import atexit
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

_HERE = Path(__file__).resolve().parent
_MODULES, _PROFILER = "torch.nn.modules.module", "torch.profiler.profiler"


class Recorder:
    """Counts steps, and records those after the warm-up."""

    def __init__(self, out: Path, warmup: int, steps: int) -> None:
        self.out, self.warmup, self.steps = out, warmup, steps
        self.seen = self.recorded = 0
        self.trace: str | None = None
        self.error: str | None = None
        self.finished = False
        self._profiler: Any = None
        self._local = threading.local()
        self._lock = threading.Lock()

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``call`` as a step; a step within a step is part of it."""

        @functools.wraps(call)
        def step(*args: Any, **kwargs: Any) -> Any:
            if _compiling() or self.finished or getattr(self._local, "inside", False):
                return call(*args, **kwargs)
            self._local.inside = True
            try:
                return self._step(call, args, kwargs)
            finally:
                self._local.inside = False

        return step

    def _step(self, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        with self._lock:
            self.seen += 1
            if self._profiler is None and self.seen > self.warmup:
                self._guarded(self._start)
        if self._profiler is None:
            return call(*args, **kwargs)
        import torch

        try:
            with torch.profiler.record_function(f"ksmith step {self.seen}"):
                return call(*args, **kwargs)
        finally:
            with self._lock:
                self.recorded += 1
                if self.recorded >= self.steps:
                    self._guarded(self.stop)

    def _start(self) -> None:
        import torch
        from torch.profiler import ProfilerActivity

        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        profiler = torch.profiler.profile(
            activities=activities, with_stack=True, record_shapes=True
        )
        profiler.start()
        self._profiler = profiler

    def stop(self) -> None:
        """End the recording and write the trace."""
        if self._profiler is None or self.finished:
            return
        self.finished = True
        self._profiler.stop()
        path = self.out / f"{os.getpid()}.json.gz"
        self._profiler.export_chrome_trace(str(path))
        self.trace = path.name

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:
            self.finished = True
            self.error = f"{type(error).__name__}: {error}"

    def close(self) -> None:
        """At the end of the process: write what there is, and say what happened."""
        self._guarded(self.stop)
        status = {
            "pid": os.getpid(), "argv": sys.argv, "seen": self.seen, "recorded": self.recorded,
            "trace": self.trace, "error": self.error,
        }  # fmt: skip
        (self.out / f"{os.getpid()}.status").write_text(json.dumps(status))


def _compiling() -> bool:
    torch = sys.modules.get("torch")
    compiler = getattr(torch, "compiler", None)
    return compiler is not None and bool(compiler.is_compiling())


class AfterImport(importlib.abc.MetaPathFinder):
    """Changes modules right after they were imported, by name or by the end of their path.

    What stands in ``before`` is given the module's spec instead, before the module is run.
    """

    def __init__(
        self,
        changes: dict[str, Callable[[ModuleType], None]],
        before: dict[str, Callable[[importlib.machinery.ModuleSpec], None]] | None = None,
    ) -> None:
        self._changes = changes
        self._before = before or {}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find what the other finders find, with the change behind it."""
        others = [finder for finder in sys.meta_path if finder is not self]
        for finder in others:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                self._prepare(name, spec)
                return spec  # type: ignore[no-any-return]
        return None

    def _prepare(self, name: str, spec: importlib.machinery.ModuleSpec) -> None:
        where = (spec.origin or "").replace(os.sep, "/")
        prepare = _meant(self._before, name, where)
        if prepare is not None:
            prepare(spec)
        change = _meant(self._changes, name, where)
        loader = spec.loader
        if change is None or loader is None or not hasattr(loader, "exec_module"):
            return
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            change(module)

        loader.exec_module = exec_module  # type: ignore[method-assign]


def _meant(by_place: dict[str, Any], name: str, where: str) -> Any:
    return by_place.get(name) or next(
        (c for end, c in by_place.items() if where.endswith("/" + end)), None
    )


def _watch_modules(recorder: Recorder) -> Callable[[ModuleType], None]:
    def change(module: ModuleType) -> None:
        # Not __call__: the profiler knows modules by its code.
        module.Module._call_impl = recorder.around(module.Module._call_impl)

    return change


def _watch_function(recorder: Recorder, qualname: str) -> Callable[[ModuleType], None]:
    def change(module: ModuleType) -> None:
        *owners, name = qualname.split(".")
        owner: Any = module
        for part in owners:
            owner = getattr(owner, part, None)
        raw = getattr(owner, "__dict__", {}).get(name)
        if isinstance(raw, staticmethod | classmethod):
            setattr(owner, name, type(raw)(recorder.around(raw.__func__)))
        elif callable(raw):
            setattr(owner, name, recorder.around(raw))
        else:
            recorder.error = f"{module.__name__} has no function {qualname}"

    return change


def _add_to_own(module: ModuleType) -> None:
    """Let the command's own profiler record stacks and shapes."""
    begin = module.profile.__init__

    @functools.wraps(begin)
    def init(self: Any, **kwargs: Any) -> None:
        begin(self, **(kwargs | {"with_stack": True, "record_shapes": True}))

    module.profile.__init__ = init


def install(settings: dict[str, str]) -> None:
    """Put the hooks in place."""
    if settings.get("KSMITH_PROFILE_OWN") == "1":
        sys.meta_path.insert(0, AfterImport({_PROFILER: _add_to_own}))
        return
    out = Path(settings["KSMITH_PROFILE_OUT"])
    warmup = int(settings.get("KSMITH_PROFILE_WARMUP", "3"))
    recorder = Recorder(out, warmup, int(settings.get("KSMITH_PROFILE_STEPS", "3")))
    path, _, qualname = settings.get("KSMITH_PROFILE_STEP", "").partition("::")
    watch = _watch_function(recorder, qualname) if qualname else _watch_modules(recorder)
    finder = AfterImport({path if qualname else _MODULES: watch})
    sys.meta_path.insert(0, finder)

    def closing(_: ModuleType) -> None:  # only processes that import torch have anything to say
        atexit.register(recorder.close)

    finder._changes.setdefault("torch.autograd.profiler", closing)


def _capture(settings: str) -> None:
    spec = importlib.util.spec_from_file_location("_ksmith_capturing", _HERE / "capturing.py")
    assert spec is not None
    assert spec.loader is not None
    capturing = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(capturing)
    sys.meta_path.insert(0, AfterImport({}, capturing.Capture(json.loads(settings)).places()))


def _run_the_one_behind() -> None:
    """Import the ``sitecustomize`` that this one hides, where there is one."""
    path = [p for p in sys.path if Path(p or ".").resolve() != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if __name__ == "sitecustomize":
    if "KSMITH_PROFILE_OUT" in os.environ:
        install(dict(os.environ))
    if "KSMITH_CAPTURE" in os.environ:
        _capture(os.environ["KSMITH_CAPTURE"])
    _run_the_one_behind()
