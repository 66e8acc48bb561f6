"""The repository as text: files, module names, syntax trees.

Files are read once, parsed with ``ast`` once, and never executed. An absolute import is
looked for in each folder between the repository's root and the importing file, outermost
first, so that ``python/``, ``src/`` and flat layouts all work; the names of the standard
library and of torch are never looked for in the repository.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from integrations.errors import TargetError

TORCH_NAMES = frozenset({"torch"})


def runs_with_torch_alone(module: str) -> bool:
    """Whether the top-level package of ``module`` is torch or the standard library."""
    top = module.partition(".")[0]
    return top in TORCH_NAMES or top in sys.stdlib_module_names


@dataclass(frozen=True, eq=False)
class SourceModule:
    """One Python file of the repository."""

    path: Path
    """Absolute."""
    name: str
    """Path within the repository, with forward slashes."""
    text: str
    tree: ast.Module

    @cached_property
    def lines(self) -> list[str]:
        """The file's lines, with their ends."""
        return self.text.splitlines(keepends=True)

    @cached_property
    def has_lazy_annotations(self) -> bool:
        """Whether ``from __future__ import annotations`` is in force."""
        return any(
            isinstance(s, ast.ImportFrom)
            and s.module == "__future__"
            and any(a.name == "annotations" for a in s.names)
            for s in self.tree.body
        )


@dataclass
class SourceTree:
    """The files under ``root``, loaded as they are asked for."""

    root: Path
    _loaded: dict[Path, SourceModule] = field(default_factory=dict)

    def load(self, path: Path) -> SourceModule:
        """Return the module in the file ``path`` (absolute, inside the root).

        Raises:
            TargetError: the file cannot be read, is not UTF-8, or is not valid Python.
        """
        if path not in self._loaded:
            self._loaded[path] = self._read(path)
        return self._loaded[path]

    def _read(self, path: Path) -> SourceModule:
        name = path.relative_to(self.root).as_posix()
        try:
            text = path.read_text(encoding="utf-8-sig")
            tree = ast.parse(text)
        except SyntaxError as error:
            raise TargetError(
                f"{name}:{error.lineno or 1}: syntax error: {error.msg}; "
                f"ksmith reads Python {sys.version_info.major}.{sys.version_info.minor}"
            ) from error
        except UnicodeDecodeError as error:
            raise TargetError(f"{name} is not text in UTF-8 ({error}); save it as UTF-8") from error
        except (OSError, ValueError, RecursionError) as error:
            raise TargetError(f"{name} cannot be read: {error}") from error
        return SourceModule(path=path, name=name, text=text, tree=tree)

    def find_absolute(self, dotted: str, importer: SourceModule) -> Path | None:
        """Return where the repository's module ``dotted`` lies as ``importer`` sees it, or None.

        The place is a ``.py`` file, or the folder of a package.
        """
        if runs_with_torch_alone(dotted):
            return None
        folders = importer.path.relative_to(self.root).parents
        for folder in sorted(folders, key=lambda p: len(p.parts)):
            found = self.find_under(self.root / folder, dotted)
            if found is not None:
                return found
        return None

    def find_relative(self, dotted: str, level: int, importer: SourceModule) -> Path | None:
        """Return where ``from {'.' * level}{dotted} import …`` in ``importer`` looks, or None."""
        folder = importer.path.parent
        for _ in range(level - 1):
            folder = folder.parent
        if not folder.is_relative_to(self.root):
            return None
        return self.find_under(folder, dotted) if dotted else folder

    def find_under(self, folder: Path, dotted: str) -> Path | None:
        """Return the package folder or file of ``dotted`` under ``folder``, or None."""
        base = folder.joinpath(*dotted.split("."))
        file = base.with_name(base.name + ".py")
        if (base / "__init__.py").is_file():
            place = base
        elif file.is_file():
            place = file
        elif base.is_dir():
            place = base
        else:
            return None
        return place if place.resolve().is_relative_to(self.root) else None

    def module_at(self, place: Path) -> SourceModule | None:
        """Return the module of a place; None for a folder without ``__init__.py``."""
        file = place / "__init__.py" if place.is_dir() else place
        return self.load(file) if file.is_file() else None
