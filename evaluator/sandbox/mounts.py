"""What a sandbox sees of the host's file system, and that as arguments of bubblewrap.

Read-only and no more than Python, torch and a C++ compiler need: ``/usr``, the loader's
configuration, the interpreter's own folders, and what the caller names. Everything else
(homes, the repository, the host's ``/tmp``) does not exist inside; ``/tmp`` and
``/dev/shm`` are private, empty and bounded. These functions read the host's layout and
return values; they mount nothing.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from evaluator.errors import SandboxUnavailable

_MERGED_INTO_USR = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_LOADER_FILES = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives")
_DRIVER_FOLDERS = (
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/usr/lib64/nvidia",
    "/run/opengl-driver/lib",
)
"""Where installers outside the loader's default path put libcuda."""


def system_binds() -> dict[Path, str]:
    """Return ``/usr``, what is not merged into it, and the loader's configuration."""
    unmerged = [name for name in _MERGED_INTO_USR if not Path(name).is_symlink()]
    wanted = [Path(name) for name in ("/usr", *unmerged, *_LOADER_FILES)]
    return {path: str(path) for path in wanted if path.exists()}


def system_links() -> dict[str, str]:
    """Return the links at the root by name: ``/bin`` leads to ``usr/bin``."""
    links = [Path(name) for name in _MERGED_INTO_USR if Path(name).is_symlink()]
    return {str(link): str(link.readlink()) for link in links}


def system_arguments() -> list[str]:
    """Return the binds and links of the system."""
    links = [f for name, target in system_links().items() for f in ("--symlink", target, name)]
    return [*links, *bind_arguments(system_binds())]


def private_arguments(*, tmp_bytes: int, shared_memory_bytes: int) -> list[str]:
    """Return a fresh ``/proc`` and ``/dev`` and the bounded scratch folders."""
    return [
        *("--proc", "/proc", "--dev", "/dev"),
        *("--perms", "1777", "--size", str(tmp_bytes), "--tmpfs", "/tmp"),  # noqa: S108 - inside
        *("--perms", "1777", "--size", str(shared_memory_bytes), "--tmpfs", "/dev/shm"),  # noqa: S108
    ]


def bind_arguments(binds: Mapping[Path, str]) -> list[str]:
    """Return read-only binds of host paths, each with parents that any user may pass.

    Bubblewrap itself makes missing parents with mode 0700, which would lock out the
    unprivileged user inside.
    """
    arguments: list[str] = []
    for source, inside in sorted(binds.items(), key=lambda bind: bind[1]):
        for parent in reversed(PurePosixPath(inside).parents[:-1]):
            arguments += ["--perms", "0755", "--dir", str(parent)]
        arguments += ["--ro-bind", str(source), inside]
    return arguments


def interpreter_binds() -> dict[Path, str]:
    """Return the folders of this Python and of the torch and triton that it imports.

    Both the name that Python knows and the folder that it resolves to are bound, so that
    the symbolic links of virtual environments lead somewhere.

    Raises:
        SandboxUnavailable: Python lives where a bind would show the whole home folder.
    """
    folders = {Path(p) for p in (sys.prefix, sys.base_prefix, sys.exec_prefix)}
    folders |= {hop.parent.parent for hop in _links(Path(sys.executable))}
    folders |= set(_package_folders(("torch", "triton")))
    folders |= {folder.resolve() for folder in folders}
    needed = [folder for folder in folders if not folder.is_relative_to("/usr")]
    for folder in needed:
        if Path.home().is_relative_to(folder):
            raise SandboxUnavailable(
                f"Python's prefix {folder} contains the home folder, which a sandbox must not "
                "see; run ksmith from a virtual environment (python3 -m venv .venv)"
            )
    return {folder: str(folder) for folder in _outermost(needed)}


def gpu_arguments() -> list[str]:
    """Return the binds of the GPU's device nodes and of driver folders outside ``/usr``.

    Raises:
        SandboxUnavailable: this machine has no device node of a GPU.
    """
    nodes = gpu_nodes(Path("/dev"))
    if not nodes:
        raise SandboxUnavailable(
            "a sandbox with a GPU was asked for, but /dev has no nvidia device; "
            "install the NVIDIA driver, or start the container with --gpus all"
        )
    arguments = [argument for node in nodes for argument in ("--dev-bind", str(node), str(node))]
    return arguments + bind_arguments(driver_binds())


def gpu_nodes(devices: Path) -> list[Path]:
    """Return the device nodes of NVIDIA's GPUs, or of MetaX's; ``[]`` where there is neither."""
    nvidia = sorted(devices.glob("nvidia*"))
    if any(node.name[len("nvidia") :].isdigit() for node in nvidia):
        return nvidia
    metax = [devices / "mxcd", devices / "dri"]
    return metax if all(node.exists() for node in metax) else []


def driver_binds() -> dict[Path, str]:
    """Return the driver's folders that ``/usr`` does not bring."""
    return {f: str(f) for f in driver_folders() if not f.is_relative_to("/usr")}


def driver_folders() -> list[Path]:
    """Return the folders with NVIDIA's user-space driver that the loader may not know."""
    return [folder for folder in map(Path, _DRIVER_FOLDERS) if folder.is_dir()]


def _links(path: Path) -> Iterable[Path]:
    """Yield ``path`` and each link on the way to the file that it names."""
    yield path
    while path.is_symlink():
        path = path.parent / path.readlink()
        yield path


def _package_folders(names: Iterable[str]) -> Iterable[Path]:
    for name in names:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            yield Path(spec.origin).parent.parent


def _outermost(folders: Iterable[Path]) -> list[Path]:
    kept: list[Path] = []
    for folder in sorted(set(folders)):
        if not any(folder.is_relative_to(outer) for outer in kept):
            kept.append(folder)
    return kept
