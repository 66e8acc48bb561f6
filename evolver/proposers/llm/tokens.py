"""How many tokens a text has: by the model's own tokenizer where it is given, else estimated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from evolver.errors import LlmUnavailable

BYTES_PER_TOKEN = 3.0
"""Code has 3 to 4 bytes per token in the vocabularies of today; the low end trims too early
rather than too late."""


@dataclass(frozen=True)
class TokenCounter:
    """Counts, and says by what means."""

    count: Callable[[str], int]
    method: str
    """``tokenizer`` or ``estimate``."""


def token_counter(tokenizer: Path | None) -> TokenCounter:
    """Return a counter by the ``tokenizer.json`` at ``tokenizer``, or by estimate without one.

    Raises:
        LlmUnavailable: the file or the package ``tokenizers`` is missing or unfit.
    """
    if tokenizer is None:
        return TokenCounter(estimate_tokens, "estimate")
    try:
        from tokenizers import Tokenizer

        loaded = Tokenizer.from_file(str(tokenizer))
    except ImportError as error:
        raise LlmUnavailable(
            "counting by a tokenizer needs the package tokenizers: pip install tokenizers; or "
            "leave `tokenizer` out, and tokens are estimated"
        ) from error
    except Exception as error:  # the package raises bare Exceptions
        raise LlmUnavailable(
            f"{tokenizer} is no tokenizer.json: {error}; name another file, or leave `tokenizer` "
            "out, and tokens are estimated"
        ) from error
    return TokenCounter(lambda text: len(loaded.encode(text).ids), "tokenizer")


def estimate_tokens(text: str) -> int:
    """Return about how many tokens ``text`` has."""
    return int(len(text.encode("utf-8", errors="replace")) / BYTES_PER_TOKEN) + 1
