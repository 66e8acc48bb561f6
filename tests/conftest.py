"""How hypothesis runs: the same examples everywhere, and no limit in time.

A red test has to be red for everyone, and a slow machine is no fault of the code. To look
for new examples: ``KSMITH_HYPOTHESIS=explore make unit``.
"""

import os

from hypothesis import settings

settings.register_profile("reproducible", derandomize=True, deadline=None)
settings.register_profile("explore", max_examples=1000, deadline=None)
settings.load_profile(os.environ.get("KSMITH_HYPOTHESIS", "reproducible"))
