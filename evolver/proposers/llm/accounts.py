"""What requests cost, and whether one more may be sent; safe with several threads.

A limit holds for what is spent together with what is in flight, each request in flight taken
at its worst. Where only those stand in the way, the next one waits for them, since most end
far below. Every try is accounted for once: in the run's transcript, in the ticket's meter, and
at the model's own counts where the server does not tell. One that is under way when the
search ends is charged its prompt.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from evolver.costs import Cost, Meter
from evolver.proposers.llm.body import Reply
from evolver.proposers.llm.config import ModelConfig
from evolver.proposers.llm.endpoint import ExchangeFailed, Try
from evolver.proposers.llm.tokens import TokenCounter
from evolver.proposers.llm.transcript import Spending, Transcript

_STORED_CHARACTERS = 1_000_000


class BudgetSpent(ExchangeFailed):
    """One more request could go over the limit of tokens or money."""


class Ledger:
    """The limits, what is spent, and what is in flight."""

    def __init__(
        self, transcript: Transcript, *, max_tokens: int | None, max_usd: float | None
    ) -> None:
        """Go on from what the transcript has."""
        self.transcript = transcript
        self._max_tokens = max_tokens
        self._max_usd = max_usd
        self._changed = threading.Condition()
        self._open: list[Account] = []

    @property
    def spending(self) -> Spending:
        """What all requests of the run have cost so far, over its sessions."""
        return self.transcript.spending

    def has_room(self, most: Cost) -> bool:
        """Whether a request of at most this cost keeps within the limits, nothing in flight."""
        return self._fits(most, Cost())

    def enter(self, account: Account) -> None:
        """Take an account among those in flight, once there is room beside them.

        Raises:
            BudgetSpent: there is no room, whatever those in flight will cost.
        """
        with self._changed:
            while not self._fits(account.most, sum((a.most for a in self._open), Cost())):
                if not self._fits(account.most, Cost()):
                    raise BudgetSpent("the budget of tokens or money is spent")
                self._changed.wait()
            self._open.append(account)

    def leave(self, account: Account, **exchange: Any) -> bool:
        """Write down what an account came to; False where that was done before."""
        with self._changed:
            if account not in self._open:
                return False
            self.transcript.exchange(**exchange)
            self._open.remove(account)
            self._changed.notify_all()
            return True

    def close(self) -> None:
        """Charge what is in flight, of which nobody will hear."""
        with self._changed:
            left = list(self._open)
        for account in left:
            account.settle(Try(Reply(""), "the search ended first", 0.0, sent=True))

    def _fits(self, most: Cost, beside: Cost) -> bool:
        tokens = self.spending.tokens + beside.tokens + most.tokens
        usd = self.spending.usd + beside.money_usd + most.money_usd
        within_tokens = self._max_tokens is None or tokens <= self._max_tokens
        return within_tokens and (self._max_usd is None or usd <= self._max_usd)


class Account:
    """Of one request and its tries, one after the other."""

    def __init__(
        self,
        ledger: Ledger,
        meter: Meter,
        model: ModelConfig,
        counter: TokenCounter,
        *,
        most: Cost,
        asked_tokens: int,
        fields: Mapping[str, Any],
    ) -> None:
        """Open it; ``fields`` are what the transcript has of every try of the request."""
        self.most = most
        self._ledger = ledger
        self._meter = meter
        self._model = model
        self._counter = counter
        self._asked_tokens = asked_tokens
        self._fields = fields

    def begin(self) -> None:
        """Set aside what the next try may cost, at most.

        Raises:
            BudgetSpent: it could go over a limit.
        """
        self._ledger.enter(self)

    def settle(self, one: Try) -> None:
        """Charge what a try came to."""
        into, out = self._tokens(one) if one.sent else (0, 0)
        usd = self._model.usd(into, out)
        told = one.reply.prompt_tokens is not None
        kept = self._ledger.leave(
            self,
            **self._fields,
            reply=_stored(one.reply),
            error=one.error,
            seconds=one.seconds,
            prompt_tokens=into,
            reply_tokens=out,
            tokens_by="server" if told else self._counter.method,
            usd=usd,
        )
        if kept:
            self._meter.charge(
                Cost(prompt_tokens=into, completion_tokens=out, money_usd=usd or 0.0)
            )

    def _tokens(self, one: Try) -> tuple[int, int]:
        """As the server tells; where it does not, by our own count."""
        into, out = one.reply.prompt_tokens, one.reply.reply_tokens
        if out is None:
            said = (one.reply.text + one.reply.reasoning).encode("utf-8", errors="replace").decode()
            out = self._counter.count(said) if said else 0
        return (self._asked_tokens if into is None else into), out


def _stored(reply: Reply) -> dict[str, object]:
    """Return the reply for the transcript; a monster is kept by its beginning."""
    fields: dict[str, object] = asdict(reply)
    clipped = max(len(reply.text), len(reply.reasoning)) > _STORED_CHARACTERS
    if clipped:
        fields["text"] = reply.text[:_STORED_CHARACTERS]
        fields["reasoning"] = reply.reasoning[:_STORED_CHARACTERS]
    return {**fields, "clipped": clipped}
