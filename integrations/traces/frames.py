"""What a Python frame's name in a trace says, and which frames are a repository's.

A frame is ``path.py(LINE): function``, where LINE is the first line of the definition, or
``nn.Module: Class_3``. The path is of the machine that recorded, as a rule without the prefix
of ``sys.path``. Which file of a checkout it is follows from the longest common end of the two
paths; which function, from the AST: the definition that begins at the line. Where the source
has moved since, it is the definition of that name, of several the one in the class whose
module was running, else the one nearest to where the file's other functions have moved to.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections import defaultdict
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Protocol

from integrations.traces.errors import TraceError

_FRAME = re.compile(r"^(?P<path>.+?)\((?P<line>\d+)\): (?P<function>.+)$")
_MODULE = re.compile(r"^nn\.Module: (?P<name>.+?)(?:_\d+)?$")
_CLEARLY = 4
"""How many times nearer than the next a definition has to lie, to be taken for certain."""
_GENERATED_CLASS = "GraphModule"
_FOREIGN = {"torch", "triton", "functorch", "torchgen", "numpy"}
_INSTALLED = {"site-packages", "dist-packages"}
_SKIPPED_FOLDERS = {".git", ".venv", "venv", "node_modules", "__pycache__"}
_BUILT_FOLDERS = {"build", "dist"}
"""Copies of the sources, at the root; further down they are packages like any other."""
_LARGEST_SOURCE = 8 << 20


class Found(StrEnum):
    """How well a frame and the checkout agree."""

    EXACT = "exact"
    """A function of that name begins at that line."""
    MOVED = "moved"
    """The function of that name begins elsewhere in the file."""
    GUESSED = "guessed"
    """Several functions of that name begin elsewhere; the likeliest was taken."""
    GONE = "gone"
    """The file has no function of that name."""
    TOP_LEVEL = "top_level"
    """The code of a file outside its functions."""
    UNREADABLE = "unreadable"
    """The file is not valid Python here."""
    NO_SOURCE = "no_source"
    """No checkout was given; the name is the trace's."""


@dataclass(frozen=True)
class Frame:
    """A Python frame as the trace names it."""

    path: str
    line: int
    function: str


@dataclass(frozen=True)
class Function:
    """A function of the repository."""

    target: str
    """``path::qualname``; without a source ``path::name``, with the class where modules tell."""
    found: Found
    line: int
    """Of the trace."""
    moved_lines: int = 0
    """How far the definition lies from the trace's line in the checkout."""


def parse_frame(name: str) -> Frame | None:
    """Return the frame that ``name`` spells, None for built-ins and modules."""
    match = _FRAME.match(name)
    if match is None or name.startswith("<"):
        return None
    return Frame(match["path"].replace("\\", "/"), int(match["line"]), match["function"])


def module_class(name: str) -> str | None:
    """Return ``RMSNorm`` for ``nn.Module: RMSNorm_3``, None for what no source defines."""
    match = _MODULE.match(name)
    return match["name"] if match and match["name"] != _GENERATED_CLASS else None


Located = dict[Frame, Function | None]


class Names(Protocol):
    """Says which function of the repository a frame is."""

    def locate(self, frames: Mapping[Frame, Set[str]]) -> Located:
        """Return the function of each frame, None for those outside the repository.

        Args:
            frames: with the classes of the modules that were running, the innermost only.
        """


class WithoutSource:
    """Names functions by the trace alone: all but torch's, the standard library's and ours."""

    def locate(self, frames: Mapping[Frame, Set[str]]) -> Located:
        """See ``Names``; a module's ``forward`` gets its class, other methods have none."""
        return {frame: self._function(frame, classes) for frame, classes in frames.items()}

    def _function(self, frame: Frame, classes: Set[str]) -> Function | None:
        parts = PurePosixPath(frame.path).parts
        top = parts[0].removesuffix(".py") if parts else ""
        if top in _FOREIGN or top in sys.stdlib_module_names or _in_python(parts):
            return None
        path = "/".join(p for p in parts if p != "/")
        if any(part.startswith("torchinductor_") for part in parts):  # compiled: no source of ours
            return None
        of_class = len(classes) == 1 and frame.function.startswith("forward")
        owner = f"{next(iter(classes))}." if of_class else ""
        return Function(f"{path}::{owner}{frame.function}", Found.NO_SOURCE, frame.line)


def _in_python(parts: tuple[str, ...]) -> bool:
    """Whether the path is one of Python's own or of an installed package, spelled whole."""
    return any(p in _INSTALLED or re.fullmatch(r"python\d\.\d+", p) for p in parts[:-1])


class Checkout:
    """Names functions by the files of a folder, each parsed at most once, none imported."""

    def __init__(self, root: Path) -> None:
        """List the Python files below ``root``.

        Raises:
            TraceError: it is no folder, or has no Python files.
        """
        self.root = root.resolve()
        if not self.root.is_dir():
            raise TraceError(f"{root} is no folder; --repo names the checkout of the repository")
        self._by_name: dict[str, list[tuple[str, ...]]] = defaultdict(list)
        for path in _python_files(self.root):
            self._by_name[path[-1]].append(path)
        if not self._by_name:
            raise TraceError(f"there is no Python file below {root}; --repo names a checkout")
        self._definitions: dict[str, Definitions | None] = {}
        self._paths: dict[str, str | None] = {}

    def locate(self, frames: Mapping[Frame, Set[str]]) -> Located:
        """See ``Names``."""
        found: Located = {}
        of_file: dict[str, list[Frame]] = defaultdict(list)
        for frame in frames:
            path = self._paths.get(frame.path, "")
            if path == "":
                path = self._paths[frame.path] = self._match(frame.path)
            if path is None:
                found[frame] = None
            else:
                of_file[path].append(frame)
        for path, listed in of_file.items():
            if path not in self._definitions:
                self._definitions[path] = read_definitions(self.root / path)
            known = self._definitions[path]
            if known is None:
                found |= {
                    f: Function(f"{path}::{f.function}", Found.UNREADABLE, f.line) for f in listed
                }
            else:
                found |= known.locate(path, {f: frames[f] for f in listed})
        return found

    def _match(self, path: str) -> str | None:
        """Return the file whose path has the longest end in common with the trace's."""
        wanted = tuple(p for p in PurePosixPath(path).parts if p not in ("/", "."))
        if not wanted:
            return None
        fitting = [
            (common, candidate)
            for candidate in self._by_name.get(wanted[-1], ())
            if self._is_same(wanted, candidate, common := _common_end(wanted, candidate))
        ]
        return "/".join(max(fitting, key=lambda f: (f[0], -len(f[1])))[1]) if fitting else None

    def _is_same(self, wanted: tuple[str, ...], candidate: tuple[str, ...], common: int) -> bool:
        """Whether one path is the whole end of the other, from the root of an import on."""
        if common == len(candidate):  # the trace's path leads from somewhere above the checkout
            above = wanted[-common - 1] if len(wanted) > common else None
            at_root = above in (None, self.root.name) and self._not_of_python(wanted)
            return common > 1 or at_root
        if common < len(wanted):
            return False
        inside = self.root.joinpath(*candidate[: len(candidate) - common])
        return not (inside / "__init__.py").exists() and self._not_of_python(wanted)

    @staticmethod
    def _not_of_python(wanted: tuple[str, ...]) -> bool:
        return wanted[0].removesuffix(".py") not in sys.stdlib_module_names


def _common_end(a: tuple[str, ...], b: tuple[str, ...]) -> int:
    count = 0
    for one, other in zip(reversed(a), reversed(b), strict=False):
        if one != other:
            break
        count += 1
    return count


def _python_files(root: Path) -> list[tuple[str, ...]]:
    found = []
    for folder, folders, files in os.walk(root):
        base = Path(folder).relative_to(root).parts
        skipped = _SKIPPED_FOLDERS if base else _SKIPPED_FOLDERS | _BUILT_FOLDERS
        folders[:] = [f for f in folders if f not in skipped]
        found += [(*base, name) for name in files if name.endswith(".py")]
    return found


@dataclass(frozen=True, order=True)
class Definition:
    """A function of a file."""

    qualname: str
    first: int
    """Line of the first decorator, else of ``def``; what Python calls ``co_firstlineno``."""
    last: int

    @property
    def name(self) -> str:
        """The last part."""
        return self.qualname.rpartition(".")[2]

    @property
    def owner(self) -> str:
        """The part before it: a class, as a rule."""
        return self.qualname.rpartition(".")[0].rpartition(".")[2]


@dataclass(frozen=True)
class Definitions:
    """The functions of one file."""

    listed: tuple[Definition, ...]

    @cached_property
    def by_name(self) -> dict[str, list[Definition]]:
        """By the bare name."""
        found: dict[str, list[Definition]] = defaultdict(list)
        for definition in self.listed:
            found[definition.name].append(definition)
        return found

    def locate(self, path: str, frames: Mapping[Frame, Set[str]]) -> dict[Frame, Function]:
        """Return the functions that ``frames``, of the file ``path``, name."""
        anchors = sorted(
            (frame.line, named[0].first - frame.line)
            for frame in frames
            if len(named := self.by_name.get(frame.function, [])) == 1
        )
        return {f: self._one(path, f, classes, anchors) for f, classes in frames.items()}

    def _one(
        self, path: str, frame: Frame, classes: Set[str], anchors: list[tuple[int, int]]
    ) -> Function:
        base = Function(f"{path}::{frame.function}", Found.GONE, frame.line)
        if frame.function == "<module>":
            return replace(base, found=Found.TOP_LEVEL)
        if frame.function.startswith("<"):  # a lambda or comprehension: what it stands in
            return self._around(path, frame, base)
        named = self.by_name.get(frame.function, [])
        exact = [d for d in named if d.first == frame.line]
        if len(named) == 1 and named[0].first < frame.line <= named[0].last:
            exact = named  # of a frame that ran before the recording, the line is the current one
        of_class = [d for d in named if d.owner in classes]
        likely = exact or of_class or named
        if not likely:
            return base
        shift = min(anchors, key=lambda a: abs(a[0] - frame.line))[1] if anchors else 0
        distances = sorted((abs(d.first - frame.line - shift), d.first, d) for d in likely)
        best = distances[0][2]
        certain = len(likely) == 1 or (anchors and distances[0][0] * _CLEARLY <= distances[1][0])
        found = Found.MOVED if certain else Found.GUESSED
        return Function(
            f"{path}::{best.qualname}",
            Found.EXACT if exact else found,
            frame.line,
            0 if exact else best.first - frame.line,
        )

    def _around(self, path: str, frame: Frame, base: Function) -> Function:
        around = [d for d in self.listed if d.first <= frame.line <= d.last]
        if not around:
            return base
        inner = max(around, key=lambda d: d.first)
        return replace(base, target=f"{path}::{inner.qualname}", found=Found.EXACT)


def read_definitions(path: Path) -> Definitions | None:
    """Return the functions of a file, None where it is not readable Python."""
    try:
        if path.stat().st_size > _LARGEST_SOURCE:
            return None
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    found: list[Definition] = []
    waiting: list[tuple[ast.AST, str]] = [(tree, "")]
    while waiting:
        node, prefix = waiting.pop()
        for child in ast.iter_child_nodes(node):
            inner = prefix
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                first = min([child.lineno, *(d.lineno for d in child.decorator_list)])
                found.append(Definition(prefix + child.name, first, child.end_lineno or first))
                inner = f"{prefix}{child.name}."
            elif isinstance(child, ast.ClassDef):
                inner = f"{prefix}{child.name}."
            waiting.append((child, inner))
    return Definitions(tuple(found))
