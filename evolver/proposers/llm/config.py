"""What the ``llm`` proposer is told: models with their endpoints and prices, sampling, limits.

The defaults are Kernel-Smith's: temperature 0.6, top-p 0.95, 32K tokens in and out. Keys are
named by their environment variable and never written down.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from evaluator.records import Record

DEFAULT_ENDPOINT = "http://127.0.0.1:8000/v1"
"""Where ``ksmith serve-model`` serves."""

Share = Annotated[float, Field(ge=0.0, le=1.0)]


class ModelConfig(Record):
    """One model behind one OpenAI-compatible endpoint."""

    name: Annotated[str, Field(min_length=1)]
    endpoint: Annotated[str, Field(pattern=r"^https?://")] = DEFAULT_ENDPOINT
    weight: PositiveFloat = 1.0
    """How often it is asked, relative to the others."""
    api_key_env: str = "OPENAI_API_KEY"
    """The environment variable that holds the key; local servers need none."""
    usd_per_million_prompt_tokens: NonNegativeFloat | None = None
    usd_per_million_reply_tokens: NonNegativeFloat | None = None
    requests_per_minute: PositiveFloat | None = None
    tokenizer: Path | None = None
    """A ``tokenizer.json`` to count with (package ``tokenizers``); without it we estimate."""

    @property
    def priced(self) -> bool:
        """Whether the cost of a request is known."""
        prices = (self.usd_per_million_prompt_tokens, self.usd_per_million_reply_tokens)
        return None not in prices

    def usd(self, prompt_tokens: int, reply_tokens: int) -> float | None:
        """Return what so many tokens cost; None without prices."""
        into, out = self.usd_per_million_prompt_tokens, self.usd_per_million_reply_tokens
        if into is None or out is None:
            return None
        return (prompt_tokens * into + reply_tokens * out) / 1e6


class LlmConfig(Record):
    """All that the proposer may do and spend."""

    models: Annotated[tuple[ModelConfig, ...], Field(min_length=1)]
    temperature: NonNegativeFloat = 0.6
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 0.95
    prompt_tokens: PositiveInt = 32_768
    """A longer prompt is trimmed."""
    reply_tokens: PositiveInt = 32_768
    diff_share: Share = 0.3
    """How often edits are asked for where there is a parent; else the whole program."""
    repair_turns: NonNegativeInt = 1
    """How often a reply that holds no usable program is answered with what is wrong."""
    tries: PositiveInt = 4
    """Per request, where the endpoint fails in a way that may pass."""
    request_seconds: PositiveFloat = 600.0
    stall_seconds: PositiveFloat = 120.0
    """The longest silence within a request."""
    proposal_seconds: PositiveFloat = 1200.0
    """One proposal with all its tries, waits and turns; no try begins after it."""
    max_tokens: PositiveInt | None = None
    """In and out, over all sessions of a run; None is no limit."""
    max_usd: PositiveFloat | None = None

    @model_validator(mode="after")
    def _a_limit_of_money_needs_prices(self) -> Self:
        unpriced = [m.name for m in self.models if not m.priced]
        if self.max_usd is not None and unpriced:
            raise ValueError(f"max_usd needs the prices of {', '.join(unpriced)}")
        return self
