"""One model behind an OpenAI-compatible endpoint: requests with tries, limits and a deadline.

Replies are streamed, so that an endless, a stalled or an oversized one is ended by us, not
by the server. What may pass (429, 5xx, a timeout, a cut connection) is tried again after
what ``Retry-After`` asks for, else after a growing pause; what may not is told at once.
One choice is asked for per request: many servers ignore ``n``. Several threads may ask at
once; they share the rate, and a pause that the server asks one of them for holds for all.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Protocol

from evolver.errors import LlmUnavailable
from evolver.proposers.llm.body import (
    Reply,
    ReplyCut,
    ReplyMalformed,
    partial_reply,
    read_reply,
    shown,
)
from evolver.proposers.llm.config import LlmConfig, ModelConfig

if TYPE_CHECKING:
    from openai import APIStatusError, OpenAI
    from tenacity import RetryCallState

LONGEST_BODY_BYTES = 32 << 20
"""32K tokens, each in an event of its own, take about 8 MB."""
_CONNECT_SECONDS = 10.0
_PROBE_SECONDS = 15.0
_LONGEST_PAUSE_SECONDS = 60.0
_MAY_PASS = {408, 409, 425, 429}

Messages = Sequence[Mapping[str, str]]


@dataclass(frozen=True)
class Try:
    """One request and what came of it."""

    reply: Reply
    """What came, also where it was cut."""
    error: str | None
    seconds: float
    sent: bool
    """Whether the endpoint took the request, and so may charge for it."""


class ExchangeFailed(Exception):
    """The endpoint gave no reply; the message says why."""


class Account(Protocol):
    """Who pays for the tries of a request."""

    def begin(self) -> None:
        """Allow the next try, or raise ``ExchangeFailed``."""

    def settle(self, one: Try) -> None:
        """Take note of what it came to."""


class _MayPass(Exception):
    """A failure that may pass; ``retry_after`` are the seconds that the server asks for."""

    def __init__(
        self, message: str, *, retry_after: float | None = None, partial: Reply | None = None
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.partial = partial


class Endpoint:
    """Asks one model."""

    def __init__(
        self,
        model: ModelConfig,
        config: LlmConfig,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        """Make the client; nothing is sent yet. Without ``sleep``, closing ends every wait.

        Raises:
            LlmUnavailable: the extra ``llm`` is not installed.
        """
        self.model = model
        self._config = config
        self._clock = clock
        self._closed = threading.Event()
        self._sleep = sleep or self._closed.wait
        self._client = _client(model)
        self._pacing = threading.Lock()
        self._next_request = -math.inf
        """No request begins before it, on the clock."""

    def close(self) -> None:
        """Close its connections; no other try begins."""
        self._closed.set()
        self._client.close()

    def context_tokens(self) -> int | None:
        """Ask what the model's context is; None where the server does not tell.

        Raises:
            LlmUnavailable: nothing answers, or the key is refused.
        """
        import openai

        try:
            listing = self._client.models.list(timeout=_PROBE_SECONDS)
            found = [m for m in listing.data or [] if m.id == self.model.name]
            size = getattr(found[0], "max_model_len", None) if found else None
        except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
            raise LlmUnavailable(
                f"{self.model.endpoint} refuses the key in {self.model.api_key_env}: "
                f"{shown(error.message)}; set it to a valid one"
            ) from error
        except openai.APIConnectionError as error:
            raise LlmUnavailable(
                f"nothing answers at {self.model.endpoint} ({shown(_cause(error))}); start a "
                f"server with `ksmith serve-model {self.model.name}`, or name another with "
                "--endpoint URL"
            ) from error
        except Exception:
            # The list is optional: some servers fail at it, and answer requests all the same.
            return None
        return size if isinstance(size, int) and size > 0 else None

    def complete(
        self,
        messages: Messages,
        *,
        seed: int,
        max_tokens: int,
        deadline: float,
        account: Account,
    ) -> Reply:
        """Return the model's reply.

        Args:
            messages: the conversation so far.
            seed: passed on; servers do not promise to heed it.
            max_tokens: of the reply.
            deadline: on the clock; no try begins after it, and none goes on for long.
            account: allows every try, and is told of it.

        Raises:
            ExchangeFailed: every try failed, one failed for good, or the account forbids it.
        """
        from tenacity import Retrying, retry_if_exception_type

        def give_up(state: RetryCallState) -> bool:
            late = self._clock() + state.upcoming_sleep >= deadline
            return late or state.attempt_number >= self._config.tries

        retrying = Retrying(
            retry=retry_if_exception_type(_MayPass),
            stop=give_up,
            wait=_pause,
            sleep=self._wait,
            reraise=True,
        )
        arguments = {"seed": seed, "max_tokens": max_tokens}
        try:
            return retrying(self._try, messages, arguments, deadline, account)
        except _MayPass as error:
            raise ExchangeFailed(
                f"{self.model.name} at {self.model.endpoint} failed "
                f"{retrying.statistics['attempt_number']} times, the last time: {error}"
            ) from error

    def _try(
        self,
        messages: Messages,
        arguments: dict[str, int],
        deadline: float,
        account: Account,
    ) -> Reply:
        self._wait_for_its_turn(deadline)
        account.begin()
        began = self._clock()

        def tell(reply: Reply, error: str | None, *, sent: bool) -> None:
            account.settle(Try(reply, error, self._clock() - began, sent=sent))

        try:
            reply = self._request(messages, arguments, deadline)
        except _MayPass as error:
            tell(error.partial or Reply(""), str(error), sent=error.partial is not None)
            raise
        except ExchangeFailed as error:
            tell(Reply(""), str(error), sent=False)
            raise
        except BaseException as error:  # an interruption: the endpoint may charge for it
            tell(Reply(""), str(error) or type(error).__name__, sent=True)
            raise
        tell(reply, None, sent=True)
        return reply

    def _request(self, messages: Messages, arguments: dict[str, int], deadline: float) -> Reply:
        import openai

        ends = min(deadline, self._clock() + self._config.request_seconds)
        silence = max(0.001, min(self._config.stall_seconds, ends - self._clock()))
        create: Any = self._client.chat.completions.with_streaming_response.create
        try:
            with create(
                model=self.model.name,
                messages=list(messages),
                temperature=self._config.temperature,
                top_p=self._config.top_p,
                stream=True,
                stream_options={"include_usage": True},
                timeout=openai.Timeout(silence, connect=min(_CONNECT_SECONDS, silence)),
                **arguments,
            ) as response:
                body = self._read(response, ends)
        except openai.APITimeoutError as error:
            raise _MayPass("the request timed out", partial=Reply("")) from error
        except openai.APIConnectionError as error:
            raise _MayPass(f"no connection: {shown(_cause(error))}") from error
        except openai.APIStatusError as error:
            raise self._refusal(error) from error
        except openai.OpenAIError as error:
            raise ExchangeFailed(f"{self.model.endpoint}: {shown(str(error))}") from error
        except Exception as error:
            if not _is_transports(error):
                raise
            raise _MayPass(f"the connection broke: {shown(_cause(error))}") from error
        try:
            return read_reply(body)
        except ReplyCut as error:
            raise _MayPass(str(error), partial=error.partial) from error
        except ReplyMalformed as error:
            raise ExchangeFailed(f"{self.model.endpoint}: {error}") from error

    def _read(self, response: Any, ends: float) -> bytes:
        """Return the whole body.

        Raises:
            _MayPass: it breaks off, or is not there in time.
            ExchangeFailed: it is larger than any reply.
        """
        body = bytearray()
        chunks = response.iter_bytes()
        while True:
            try:
                chunk = next(chunks, None)
            except Exception as error:
                if not _is_transports(error):
                    raise
                cut = f"the connection broke within the reply: {shown(_cause(error))}"
                raise _MayPass(cut, partial=partial_reply(bytes(body))) from error
            if chunk is None:
                return bytes(body)
            body += chunk
            if len(body) > LONGEST_BODY_BYTES:
                raise ExchangeFailed(
                    f"{self.model.endpoint} sent more than {LONGEST_BODY_BYTES >> 20} MiB"
                )
            if self._clock() >= ends:
                late = "the reply was not complete in time"
                raise _MayPass(late, partial=partial_reply(bytes(body)))

    def _refusal(self, error: APIStatusError) -> _MayPass | ExchangeFailed:
        status = error.status_code
        said = f"HTTP {status}: {shown(error.message)}"
        passes = status in _MAY_PASS or status >= 500
        if passes and error.code != "insufficient_quota":
            pause = _retry_after(error.response.headers)
            self._hold_back(pause or 0.0)
            return _MayPass(said, retry_after=pause)
        return ExchangeFailed(f"{self.model.name} at {self.model.endpoint}: {said}")

    def _wait(self, seconds: float) -> None:
        self._sleep(seconds)

    def _hold_back(self, seconds: float) -> None:
        with self._pacing:
            self._next_request = max(self._next_request, self._clock() + seconds)

    def _wait_for_its_turn(self, deadline: float) -> None:
        """Take the next place in the rate, and wait for it.

        Raises:
            ExchangeFailed: it lies beyond the deadline, or the search has ended.
        """
        with self._pacing:
            due = max(self._clock(), self._next_request)
            if due < deadline and self.model.requests_per_minute is not None:
                self._next_request = due + 60.0 / self.model.requests_per_minute
        if due >= deadline:
            raise ExchangeFailed(
                f"{self.model.name} at {self.model.endpoint}: the rate, or a pause that the "
                f"server asked for, allows no request for {due - self._clock():.0f} s"
            )
        if due > self._clock():
            self._wait(due - self._clock())
        if self._closed.is_set():
            raise ExchangeFailed("the search has ended")


def require_client() -> None:
    """Check that the extra is there.

    Raises:
        LlmUnavailable: it is not.
    """
    try:
        import openai  # noqa: F401
        import tenacity  # noqa: F401
    except ImportError as error:
        raise LlmUnavailable(
            f"asking a model needs the package {error.name}: pip install 'ksmith-bot[llm]'"
        ) from error


def _client(model: ModelConfig) -> OpenAI:
    require_client()
    import openai

    key = os.environ.get(model.api_key_env) or "none"
    # Its own retries heed neither our deadline nor our transcript.
    return openai.OpenAI(api_key=key, base_url=model.endpoint, max_retries=0)


def _pause(state: RetryCallState) -> float:
    """Return how long to wait: what the server asks for, else 1, 2, 4, ... seconds and jitter."""
    from tenacity import wait_exponential_jitter

    error = state.outcome.exception() if state.outcome else None
    asked = error.retry_after if isinstance(error, _MayPass) else None
    if asked is not None:
        return asked
    return float(wait_exponential_jitter(initial=1, max=_LONGEST_PAUSE_SECONDS)(state))


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Read ``Retry-After``: seconds or a date; None where it is neither."""
    value = headers.get("retry-after", "")
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError):
            return None
    return None if math.isnan(seconds) else max(0.0, seconds)


def _is_transports(error: Exception) -> bool:
    """Whether ``error`` is the HTTP library's; openai passes on what happens within a body."""
    return type(error).__module__.partition(".")[0].startswith("httpx")


def _cause(error: BaseException) -> str:
    """Return the innermost error's words, or its name where it has none."""
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error) or type(error).__name__
