"""Whose turn it is to propose, and what becomes of a proposal until it is logged.

First the seeders give all they have, one after the other; then the bandit chooses. A slow
proposer (a model) is asked in a thread of its own, a few at a time, while evaluations and other
proposals go on; all others answer at once. A proposal is a ticket: its number, the run's seed
and the state at the moment it was taken decide who is asked and what is shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from evaluator.candidate import Candidate
from evaluator.errors import EvaluatorError
from evolver.adaptive import Advice
from evolver.costs import Cost, Meter
from evolver.flights import Flights
from evolver.guide import Guide
from evolver.journal import Journal
from evolver.library.entry import Known
from evolver.modes import Choice, choose
from evolver.progress import Phase
from evolver.proposers.base import ProposalContext, Proposer
from evolver.store import EntryKind

FRUITLESS_LIMIT = 60
"""Proposals in a row without a new candidate, after which the search is at its end."""
SEEDER_REPEATS = 40
"""Known seeds in a row, after which a seeder is taken to have no others; those that it gave in
earlier sessions come again and are not among them."""
SEEDER_FAILURES = 3
SLOW_PROPOSALS = 4
"""Of slow proposers, at once."""
WAIT = ""
"""Why nobody is asked where something has to land first."""


@dataclass(frozen=True)
class Ticket:
    """One proposal that was asked for."""

    number: int
    proposer: Proposer
    choice: Choice
    context: ProposalContext


@dataclass(frozen=True)
class Offer:
    """What came of a ticket: a candidate, nothing, or the text of the proposer's failure."""

    candidate: Candidate | None
    failure: str | None
    seconds: float


@dataclass
class Misses:
    """How often the seeder that is asked had no new seed."""

    repeats: int = 0
    """In a row."""
    failures: int = 0


class Turns:
    """Takes tickets, one at a time, and logs what comes of them."""

    def __init__(
        self,
        journal: Journal,
        flights: Flights,
        *,
        seeders: Sequence[Proposer],
        proposers: Sequence[Proposer],
        known: Sequence[Known],
        serial: bool,
    ) -> None:
        self._journal = journal
        self._state = journal.state
        self._budget = journal.budget
        self._flights = flights
        self._seeders = seeders
        self._proposers = {p.name: p for p in proposers}
        self._known = known
        self._serial = serial
        self._guide = Guide(journal.run)
        self._asked: dict[int, Ticket] = {}
        """In flight, by number."""
        self._misses = Misses()

    @property
    def asked(self) -> int:
        """Number of proposals in flight."""
        return len(self._asked)

    @property
    def seeding(self) -> bool:
        """Whether a seeder may have more to give."""
        return self._seeder() is not None

    def account_for_the_killed(self) -> None:
        """Log what proposers have spent by their own books in sessions that logged it no more."""
        for name, proposer in self._proposers.items():
            own, (_, logged) = getattr(proposer, "spent", Cost()), self._state.proposing(name)
            if own.tokens <= logged.tokens:
                continue
            missing = Cost(
                prompt_tokens=max(0, own.prompt_tokens - logged.prompt_tokens),
                completion_tokens=max(0, own.completion_tokens - logged.completion_tokens),
                money_usd=max(0.0, own.money_usd - logged.money_usd),
            )
            self._journal.append(EntryKind.ABANDONED, name, cost=missing)

    def take(self, *, judging: bool) -> str | None:
        """Ask whose turn it is; ``judging`` says whether candidates are still to be judged.

        Returns:
            None, or why nobody was asked: WAIT, or the reason for which the search ends.
        """
        seeder = self._seeder()
        if seeder is not None:
            unknown = judging and self._state.islands.leader is None
            if unknown and getattr(seeder, "fallback", False):
                return WAIT  # it is asked where nothing else turns out to be correct
            self._seed(seeder)
            return None
        if self._state.islands.leader is None and judging:
            return WAIT  # there may soon be something to start from
        if self._state.fruitless >= FRUITLESS_LIMIT:
            return f"{FRUITLESS_LIMIT} proposals in a row brought nothing new"
        return self._heed_advice() or self._ask_next()

    def abandon(self) -> None:
        """Give up the proposals in flight, and count what they have cost.

        Their proposers are closed first, since that is when models charge for what they had begun.
        """
        for proposer in {t.proposer.name: t.proposer for t in self._asked.values()}.values():
            getattr(proposer, "close", lambda: None)()
        for ticket in list(self._asked.values()):
            self._log(EntryKind.ABANDONED, ticket, ticket.context.meter.spent)
        self._asked.clear()

    def _seeder(self) -> Proposer | None:
        return next((s for s in self._seeders if s.name not in self._state.seeded), None)

    def _seed(self, seeder: Proposer) -> None:
        """Ask a seeder; after its last seed, or when it does nothing but repeat or fail, log that.

        Repeats are not logged: a seeder starts over in a resumed session, and they must not
        shift the numbers, and so the choices, of all that follows.
        """
        ticket = self._ticket(seeder)
        self._journal.report(Phase.PROPOSING, seeder.name)
        with self._flights.away():
            offer = self._offer(ticket)
        has_more = offer.failure is not None or offer.candidate is not None
        if offer.candidate is not None and self._state.knows(offer.candidate.id):
            self._misses.repeats += 1
        elif has_more:
            self._misses.repeats = 0
            self._misses.failures += offer.failure is not None
            self._receive(ticket, offer)
        if not has_more or self._gives_up(seeder):
            self._misses = Misses()
            why = "; ".join(dict.fromkeys(getattr(seeder, "failures", ())))
            cost = Cost(seconds=offer.seconds)
            self._journal.append(EntryKind.SEEDED, seeder.name, cost=cost, detail=why)

    def _gives_up(self, seeder: Proposer) -> bool:
        given, _ = self._state.proposing(seeder.name)
        too_many_repeats = self._misses.repeats >= SEEDER_REPEATS + given
        return too_many_repeats or self._misses.failures >= SEEDER_FAILURES

    def _heed_advice(self) -> str | None:
        decision = self._guide.decide(self._state)
        self._journal.advice = decision.reason
        if decision.advice is Advice.STOP:
            return decision.reason
        if decision.advice is Advice.REDIRECT:
            for name in decision.rest or ("",):
                self._journal.append(EntryKind.ADVISED, name, detail=decision.reason)
        return None

    def _ask_next(self) -> str | None:
        names = self._awake()
        asked = Counter(ticket.proposer.name for ticket in self._asked.values())
        name = self._state.bandit.choose(names, asked)
        if name is not None and self._flies(name) and self.asked >= SLOW_PROPOSALS:
            # Where only steps are limited, nobody else takes a model's turn while it thinks.
            quick = [n for n in names if not self._flies(n)] if self._budget.limits_time else []
            name = self._state.bandit.choose(quick, asked)
            if name is None:
                return WAIT
        if name is None:
            spent = self._budget.out_of_models(self._state.cost)
            return spent or "no proposer has anything more to offer"
        self._ask(self._proposers[name])
        return None

    def _awake(self) -> list[str]:
        """Return who may be asked, in their order."""
        names = list(self._proposers)
        if self._budget.out_of_models(self._cost_with_asked()):
            names = [n for n in names if not self._is_slow(n)]
        if self._state.islands.leader is None and self._asked:
            names = [n for n in names if self._flies(n)]  # the others need something to start from
        return [n for n in names if n not in self._state.resting] or names

    def _is_slow(self, name: str) -> bool:
        return getattr(self._proposers[name], "slow", False)

    def _flies(self, name: str) -> bool:
        return self._is_slow(name) and not self._serial

    def _cost_with_asked(self) -> Cost:
        """Return what was spent, and what the proposals in flight are likely to cost."""
        ahead = self._state.cost
        for ticket in self._asked.values():
            count, cost = self._state.proposing(ticket.proposer.name)
            ahead += cost.share(max(1, count))
        return ahead

    def _ask(self, proposer: Proposer) -> None:
        ticket = self._ticket(proposer)
        self._journal.report(Phase.PROPOSING, proposer.name)
        if not self._flies(proposer.name):
            with self._flights.away():
                offer = self._offer(ticket)
            self._receive(ticket, offer)
            return

        def landed(outcome: Future[Offer]) -> None:
            if self._asked.pop(ticket.number, None) is not None:  # else it was abandoned
                self._receive(ticket, outcome.result())

        self._asked[ticket.number] = ticket
        self._flights.start(lambda: self._offer(ticket), landed)

    def _ticket(self, proposer: Proposer) -> Ticket:
        """Take the next number, and choose what its proposal starts from."""
        journal, config = self._journal, self._journal.run.config
        number = max([self._state.tickets, *self._asked]) + 1
        if self.seeding:
            leader = self._state.islands.leader
            known = [leader.candidate_id] if leader else []
            choice = Choice(self._state.islands.for_ticket(number), exemplar_ids=known)
        else:
            seeders = {seeder.name for seeder in self._seeders}
            rng = partial(journal.rng, number)
            choice = choose(config.mode, self._state, number, rng, seeders=seeders)
        context = ProposalContext(
            loaded=journal.run.loaded,
            backend=config.backend,
            rng=journal.rng(number, "proposal"),
            attempt_number=number,
            parent=journal.attempt(choice.parent_id) if choice.parent_id else None,
            exemplars=[journal.attempt(i) for i in choice.exemplar_ids],
            failures=[journal.attempt(i) for i in choice.failure_ids],
            known=self._known,
            meter=Meter(),
        )
        return Ticket(number, proposer, choice, context)

    def _offer(self, ticket: Ticket) -> Offer:
        """Let the proposer work; this may run in a thread of its own."""
        began = self._journal.clock()
        candidate, failure = None, None
        try:
            candidate = ticket.proposer.propose(ticket.context)
        except EvaluatorError:
            raise
        except Exception as error:
            # A proposer's bug must not end a run that others can go on with; the log keeps
            # it, and a proposer that fails on and on comes to rest.
            failure = f"{type(error).__name__}: {error}"
        return Offer(candidate, failure, self._journal.clock() - began)

    def _receive(self, ticket: Ticket, offer: Offer) -> None:
        """Log what came of a ticket; a new candidate is owed its evaluation from then on."""
        cost = Cost(seconds=offer.seconds) + ticket.context.meter.spent
        candidate = offer.candidate
        if offer.failure is not None:
            self._log(EntryKind.BROKEN, ticket, cost, offer.failure)
        elif candidate is None:
            self._log(EntryKind.NOTHING, ticket, cost)
        elif self._state.knows(candidate.id):
            self._log(EntryKind.DUPLICATE, ticket, cost, candidate.id)
        else:
            self._log(EntryKind.PROPOSED, ticket, cost, candidate=candidate)

    def _log(
        self,
        kind: EntryKind,
        ticket: Ticket,
        cost: Cost,
        detail: str = "",
        candidate: Candidate | None = None,
    ) -> None:
        self._journal.append(
            kind,
            ticket.proposer.name,
            ticket=ticket.number,
            candidate=candidate,
            parent_id=ticket.choice.parent_id,
            island=ticket.choice.island,
            cost=cost,
            detail=detail,
        )
