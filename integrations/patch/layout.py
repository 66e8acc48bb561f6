"""Where the new files go and what they are called: the generic rule, in this one place.

The kernel file lies beside the target, or in the ``kernels/`` folder beside it where the
repository has one. The test lies in the repository's ``tests/`` or ``test/``, in the
deepest folder there that mirrors the target's; where there is none, ``tests/`` is made.
Paths are POSIX paths relative to the root of the git repository.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import PurePosixPath

from integrations.patch.errors import PatchError
from integrations.patch.site import FunctionSite

_TEST_FOLDERS = ("tests", "test")


@dataclass(frozen=True)
class Layout:
    """Paths and module names of the change."""

    target: PurePosixPath
    kernel: PurePosixPath
    test: PurePosixPath
    kernel_package: str
    """What the target file writes after ``from`` (``.``, ``pkg.sub``, '' in no package)."""
    target_module: str
    """Dotted name by which a test imports the target."""
    kernel_module: str
    """Dotted name by which a test imports the kernel file."""
    import_root: PurePosixPath
    """Folder that must be on ``sys.path``."""


def plan_layout(
    *,
    target: PurePosixPath,
    qualname: str,
    site: FunctionSite,
    files: Collection[PurePosixPath],
    source_roots: Collection[PurePosixPath] = (PurePosixPath("."),),
) -> Layout:
    """Choose the paths for a change to ``qualname`` in ``target``.

    ``files`` are all files of the commit; ``source_roots`` the folders in which the search
    for tests may end (the ``--repo`` folder, the top of the repository).

    Raises:
        PatchError: a file with the kernel's or the test's name is there already.
    """
    folders = {parent for path in files for parent in path.parents}
    home = target.parent / "kernels" if target.parent / "kernels" in folders else target.parent
    stem = _stem(target, qualname)
    kernel = home / f"{stem}.py"
    root = _import_root(target, site, files)
    test = _test_folder(target, root, folders, source_roots) / f"test_{stem}.py"
    for path in (kernel, test):
        if path in files:
            raise PatchError(
                f"{path} exists already: the target may be optimised already; "
                "extract it again, or remove that file first"
            )
    return Layout(
        target=target,
        kernel=kernel,
        test=test,
        kernel_package=_package_as_written(target, home, root, site),
        target_module=_dotted(target.with_suffix(""), root),
        kernel_module=_dotted(kernel.with_suffix(""), root),
        import_root=root,
    )


def _stem(target: PurePosixPath, qualname: str) -> str:
    """``<file>_<function>_kernel`` in words that are identifiers."""
    name = target.parent.name if target.stem == "__init__" else target.stem
    words = f"{name}_{qualname.rsplit('.', 1)[-1].strip('_')}_kernel"
    cleaned = re.sub(r"\W", "_", words).lower()
    return cleaned if not cleaned[0].isdigit() else f"k{cleaned}"


def _import_root(
    target: PurePosixPath, site: FunctionSite, files: Collection[PurePosixPath]
) -> PurePosixPath:
    """The folder from which the target is imported.

    A folder that the target's own absolute imports start with is a package even without an
    ``__init__.py``; else packages are followed upwards for as long as they have one, and at
    least as far as the target's relative imports reach.
    """
    absolute = {i.module.split(".")[0] for i in site.imports if not i.module.startswith(".")}
    for parent in reversed(target.parents):
        if parent.name and parent.name in absolute:
            return parent.parent
    dots = max((len(i.module) - len(i.module.lstrip(".")) for i in site.imports), default=0)
    for depth, folder in enumerate(target.parents):
        if depth >= dots and folder / "__init__.py" not in files:
            return folder
    return PurePosixPath(".")


def _dotted(path: PurePosixPath, root: PurePosixPath) -> str:
    parts = path.relative_to(root).parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def _package_as_written(
    target: PurePosixPath, home: PurePosixPath, root: PurePosixPath, site: FunctionSite
) -> str:
    """Relative where the file itself imports relatively, absolute where it does not."""
    below = ".".join(home.relative_to(target.parent).parts)
    writes_relative = any(i.module.startswith(".") for i in site.imports)
    if home == root and not writes_relative:
        return ""
    if home == root:
        return f".{below}"
    top = home.relative_to(root).parts[0]
    writes_absolute = any(i.module.split(".")[0] == top for i in site.imports)
    if writes_relative or not writes_absolute:
        return f".{below}"
    return _dotted(home, root)


def _test_folder(
    target: PurePosixPath,
    root: PurePosixPath,
    folders: Collection[PurePosixPath],
    source_roots: Collection[PurePosixPath],
) -> PurePosixPath:
    inside_package = target.parent.relative_to(root).parts[1:]
    bases = (*source_roots, *[p for p in target.parents if p not in source_roots])
    tests = next((b / t for b in bases for t in _TEST_FOLDERS if b / t in folders), None)
    if tests is None:
        return next(iter(source_roots), PurePosixPath(".")) / _TEST_FOLDERS[0]
    folder = tests
    for part in inside_package:
        if folder / part not in folders:
            break
        folder = folder / part
    return folder
