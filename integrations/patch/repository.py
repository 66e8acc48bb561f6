"""The git side: read a commit, write a commit to a new branch, touch nothing else.

The commit is built from objects and a private index; the branch appears in one atomic
``update-ref`` at the end. The user's checkout, index and current branch are never written,
no hook of the repository runs, and a kill at any moment leaves at most unreachable objects.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import git

from integrations.patch.errors import BranchExists, BranchNameInvalid, RepositoryUnfit

_NEW_FILE_MODE = "100644"
_NO_COMMIT = "0" * 40
_SAFE = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false")
"""Hooks and monitors are the repository's code; we run none of it."""


class TargetRepository:
    """A git repository that ksmith adds one branch to."""

    def __init__(self, folder: Path) -> None:
        """Open the repository that ``folder`` belongs to.

        Raises:
            RepositoryUnfit: there is none, it is bare or has no commit.
        """
        try:
            self._repo = git.Repo(folder, search_parent_directories=True)
        except git.NoSuchPathError as error:
            raise RepositoryUnfit(f"no such folder: {folder}") from error
        except git.InvalidGitRepositoryError as error:
            raise RepositoryUnfit(
                f"{folder} is not a git repository, so there is nothing to put a branch in; "
                "run `git init && git add -A && git commit` there, or give a clone"
            ) from error
        if self._repo.working_tree_dir is None:
            raise RepositoryUnfit(f"{folder} is a bare repository; give a clone with a checkout")
        self.top = Path(self._repo.working_tree_dir).resolve()
        self.prefix = PurePosixPath(folder.resolve().relative_to(self.top).as_posix())
        self.base = self._head()

    def _head(self) -> str:
        try:
            return self.resolve("HEAD")
        except RepositoryUnfit as error:
            raise RepositoryUnfit(f"{self.top} has no commit yet; commit first") from error

    def _git(
        self, *arguments: str, env: Mapping[str, str] | None = None, strip: bool = True
    ) -> str:
        command = ["git", *_SAFE, "--literal-pathspecs", *arguments]
        try:
            return str(self._repo.git.execute(command, env=env, strip_newline_in_stdout=strip))
        except git.GitCommandError as error:
            detail = str(error.stderr).strip().removeprefix("stderr: ") or str(error)
            raise RepositoryUnfit(f"git {arguments[0]} failed in {self.top}: {detail}") from error
        except git.GitCommandNotFound as error:
            raise RepositoryUnfit("git is not installed; install it with your packages") from error

    def files(self) -> frozenset[PurePosixPath]:
        """All paths of the base commit."""
        listed = self._git("ls-tree", "-r", "-z", "--name-only", self.base)
        return frozenset(PurePosixPath(p) for p in listed.split("\0") if p)

    def read(self, path: PurePosixPath) -> bytes:
        """Content of ``path`` in the base commit, exactly as git stores it.

        Raises:
            RepositoryUnfit: it is not a file of that commit.
        """
        try:
            blob = self._repo.commit(self.base).tree / str(path)
        except KeyError as error:
            raise RepositoryUnfit(
                f"{path} is not in the commit {self.base[:10]} of {self.top}; "
                "commit it, or check out the commit that the problem was extracted from"
            ) from error
        if blob.type != "blob" or blob.mode == 0o120000:
            raise RepositoryUnfit(f"{path} is not a plain file in {self.base[:10]}")
        return bytes(blob.data_stream.read())

    def require_clean(self, path: PurePosixPath) -> None:
        """Refuse while ``path`` or the index differ from the base commit.

        Raises:
            RepositoryUnfit: with the paths that differ and what to do.
        """
        staged = self._git("diff", "--cached", "--name-only", "-z", self.base)
        edited = self._git("diff", "--name-only", "-z", self.base, "--", str(path))
        paths = sorted({p for p in (staged + "\0" + edited).split("\0") if p})
        if paths:
            raise RepositoryUnfit(
                f"the repository is not clean: {', '.join(paths[:5])} differ from the last "
                "commit; commit or stash them, then run this again"
            )

    def is_clean(self) -> bool:
        """Whether no tracked file differs from the base commit."""
        return not self._git("diff", "--name-only", self.base)

    def branch_commit(self, branch: str) -> str | None:
        """The commit at ``branch``, None where there is no such branch."""
        reference = f"refs/heads/{branch}"
        listed = self._git("for-each-ref", "--format=%(objectname)", reference)
        return listed.strip() or None

    def require_branch_free(self, branch: str, *, replace: bool) -> str | None:
        """Check the name and return the commit that ``branch`` is at now, if any.

        Raises:
            BranchNameInvalid: the name is not one that git takes.
            BranchExists: it is there and must not be replaced, or is checked out.
        """
        try:
            self._git("check-ref-format", "--branch", branch)
        except RepositoryUnfit as error:
            raise BranchNameInvalid(
                f"{branch!r} is not a name for a branch; give another with --branch"
            ) from error
        current = self.branch_commit(branch)
        if current is None:
            return None
        if not replace:
            raise BranchExists(
                f"the branch {branch} exists already; use --branch NAME for another, "
                "or --force to replace it"
            )
        used = self._git("worktree", "list", "--porcelain")
        if f"branch refs/heads/{branch}\n" in used + "\n":
            raise BranchExists(f"the branch {branch} is checked out; switch to another one first")
        return current

    def commit_to_branch(
        self,
        branch: str,
        files: Mapping[PurePosixPath, bytes],
        message: str,
        *,
        replaces: str | None,
    ) -> str:
        """Put ``files`` on top of the base commit and let ``branch`` point there. All or nothing.

        Raises:
            RepositoryUnfit: git refuses (no room, a name in the way, the branch moved meanwhile).
        """
        with tempfile.TemporaryDirectory(prefix="ksmith-index-") as folder:
            index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
            self._git("read-tree", self.base, env=index)
            for number, (path, content) in enumerate(files.items()):
                source = Path(folder) / str(number)
                source.write_bytes(content)
                blob = self._git("hash-object", "-w", "--no-filters", str(source)).strip()
                entry = f"{self._mode(path)},{blob},{path}"
                self._git("update-index", "--add", "--cacheinfo", entry, env=index)
            tree = self._git("write-tree", env=index).strip()
            text = Path(folder) / "message"
            text.write_text(message, encoding="utf-8")
            commit = self._git(
                "commit-tree", tree, "-p", self.base, "-F", str(text), env=self._identity()
            ).strip()
        self._git(
            "update-ref", "-m", "ksmith integrate", f"refs/heads/{branch}", commit,
            replaces or _NO_COMMIT,
        )  # fmt: skip
        return commit

    def diff(self, commit: str) -> str:
        """The change from the base commit to ``commit`` as a patch that ``git apply`` takes."""
        return self._git(
            "diff", "--no-ext-diff", "--no-color", "--full-index", "--binary", self.base, commit,
            strip=False,
        )  # fmt: skip

    def export(self, commit: str, folder: Path) -> None:
        """Write the files of ``commit`` into ``folder``, which is made, without any git data."""
        folder.mkdir()
        with tempfile.TemporaryDirectory(prefix="ksmith-index-") as temporary:
            index = {"GIT_INDEX_FILE": str(Path(temporary) / "index")}
            self._git("read-tree", commit, env=index)
            self._git("checkout-index", "--all", f"--prefix={folder}/", env=index)

    def resolve(self, name: str) -> str:
        """The commit that ``name`` stands for.

        Raises:
            RepositoryUnfit: it stands for none.
        """
        return self._git("rev-parse", "--verify", f"{name}^{{commit}}").strip()

    def _mode(self, path: PurePosixPath) -> str:
        listed = self._git("ls-tree", self.base, "--", str(path))
        return listed.split(" ", 1)[0] if listed else _NEW_FILE_MODE

    def _identity(self) -> dict[str, str]:
        """The author is ksmith; the committer is the user where git knows one."""
        ours = {"NAME": "ksmith", "EMAIL": "ksmith@users.noreply.github.com"}
        identity = {f"GIT_AUTHOR_{key}": value for key, value in ours.items()}
        reader = self._repo.config_reader()
        if not (reader.has_option("user", "name") and reader.has_option("user", "email")):
            identity |= {f"GIT_COMMITTER_{key}": value for key, value in ours.items()}
        return identity
