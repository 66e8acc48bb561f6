"""How hypothesis runs: the same examples everywhere, and no limit in time.

A red test has to be red for everyone, and a slow machine is no fault of the code. To look
for new examples: ``KSMITH_HYPOTHESIS=explore make unit``.
"""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("reproducible", derandomize=True, deadline=None)
settings.register_profile("explore", max_examples=1000, deadline=None)
settings.load_profile(os.environ.get("KSMITH_HYPOTHESIS", "reproducible"))


@pytest.fixture(scope="session", autouse=True)
def _library_of_the_tests_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Searches of tests must neither learn from the user's library nor add to it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KSMITH_LIBRARY", str(tmp_path_factory.mktemp("library") / "library.db"))
        yield
