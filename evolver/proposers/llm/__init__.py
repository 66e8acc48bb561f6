"""The ``llm`` proposer: a language model as a local improver of programs.

Each proposal is one short conversation with a model behind an OpenAI-compatible endpoint: a
prompt with the parent and its feedback, a reply with a plan and a program or edits, and a
repair turn where the reply cannot be used. What a model writes is data: it becomes a
candidate, which the evaluator judges like any other, or the attempt fails with a message.
Everything sent and received is kept beside the run (``transcript.py``), and its cost counted
(``accounts.py``). Several threads may ask for proposals at once.

The prompt is a function of the context; the reply is the model's, and no seed brings it back.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from evaluator.candidate import BackendName, Candidate
from evaluator.machine import cpu_count, cpu_model, gpus
from evolver.costs import Cost
from evolver.proposers.base import Attempt, ProposalContext
from evolver.proposers.llm.accounts import Account, BudgetSpent, Ledger
from evolver.proposers.llm.body import Reply
from evolver.proposers.llm.config import LlmConfig, ModelConfig
from evolver.proposers.llm.endpoint import Endpoint, Messages
from evolver.proposers.llm.parsing import Proposal, ReplyFault, parse_reply
from evolver.proposers.llm.prompt import Form, Hint, Prompt, make_prompt, repair_message
from evolver.proposers.llm.tokens import TokenCounter, token_counter
from evolver.proposers.llm.transcript import TRANSCRIPT_FILE, Spending, Transcript

__all__ = ["TRANSCRIPT_FILE", "LlmConfig", "LlmProposer", "ModelConfig", "hardware_for"]

_REPEATED_CHARACTERS = 8_000
"""Of a bad reply, as the repair turn shows it to its author."""
_RESERVED_SHARE = 1 / 8
_RESERVED_TOKENS = 512
"""Of the prompt's budget, at most, for the chat template and a repair turn."""
_DESCRIPTION_CHARACTERS = 120


@dataclass(frozen=True)
class _Voice:
    """One model that can be asked, and how much fits."""

    endpoint: Endpoint
    counter: TokenCounter
    prompt_tokens: int
    reply_tokens: int

    @property
    def first_prompt_tokens(self) -> int:
        """What the first turn may take of the prompt's budget."""
        reserved = min(_RESERVED_TOKENS, int(_RESERVED_SHARE * self.prompt_tokens))
        return self.prompt_tokens - reserved

    @property
    def most(self) -> Cost:
        """What one request may cost."""
        usd = self.endpoint.model.usd(self.prompt_tokens, self.reply_tokens)
        return Cost(
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.reply_tokens,
            money_usd=usd or 0.0,
        )

    def tokens_of(self, messages: Messages) -> int:
        """Count without the chat template."""
        return sum(self.counter.count(message["content"]) for message in messages)


@dataclass
class _Conversation:
    """One proposal on its way."""

    context: ProposalContext
    voice: _Voice
    base: Attempt | None
    form: Form
    hint: Hint
    deadline: float
    turn: int = 0

    @property
    def entry(self) -> str:
        return self.context.loaded.problem.entry.candidate_function


class LlmProposer:
    """Asks models for children of ``context.parent``, or for a first program where none works."""

    name = "llm"
    slow = True
    """Most of a proposal is waiting for the model; evaluations can go on meanwhile."""

    def __init__(
        self,
        config: LlmConfig,
        transcript: Path,
        *,
        hardware: str,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        """Make the clients and read what the run has spent; nothing is sent yet.

        Args:
            config: models, sampling, limits.
            transcript: where everything is kept; appended to.
            hardware: what the prompt says of the machine (``hardware_for``).
            clock: in seconds, for deadlines.
            sleep: waits so many seconds; by default ``close`` ends it.

        Raises:
            LlmUnavailable: the extra ``llm`` or a tokenizer is missing.
        """
        self._config = config
        self._hardware = hardware
        self._clock = clock
        self._transcript = Transcript(transcript)
        self._ledger = Ledger(
            self._transcript, max_tokens=config.max_tokens, max_usd=config.max_usd
        )
        self._voices = [self._voice(model, clock, sleep) for model in config.models]

    @property
    def spending(self) -> Spending:
        """What all requests of the run have cost so far, over its sessions."""
        return self._transcript.spending

    @property
    def spent(self) -> Cost:
        """The same as a cost."""
        spending = self.spending
        return Cost(
            prompt_tokens=spending.prompt_tokens,
            completion_tokens=spending.reply_tokens,
            money_usd=spending.usd,
        )

    def checked(self) -> Self:
        """Ask every endpoint once whether it is there, and how long a context it has.

        Raises:
            LlmUnavailable: one does not answer, or refuses the key.
        """
        self._voices = [self._fitted(voice) for voice in self._voices]
        return self

    def close(self) -> None:
        """Close the connections. What is in flight in other threads is charged and fails."""
        for voice in self._voices:
            voice.endpoint.close()
        self._ledger.close()

    def propose(self, context: ProposalContext) -> Candidate | None:
        """Return what a model proposes; None where the budget of tokens or money is spent.

        Raises:
            ExchangeFailed: the endpoint gave no reply.
            ReplyFault: no turn's reply held a usable program.
        """
        rng = context.rng
        voice = rng.choices(self._voices, [m.weight for m in self._config.models])[0]
        base = context.parent or next(reversed(context.failures), None)
        wants_diff = rng.random() < self._config.diff_share and base is not None
        conversation = _Conversation(
            context=context,
            voice=voice,
            base=base,
            form=Form.DIFF if wants_diff else Form.FULL,
            hint=rng.choice(list(Hint)),
            deadline=self._clock() + self._config.proposal_seconds,
        )
        if not self._ledger.has_room(voice.most):
            return None
        try:
            return self._converse(conversation)
        except BudgetSpent:
            return None

    def _converse(self, conversation: _Conversation) -> Candidate:
        """Hold the conversation and keep its outcome."""
        plan, candidate, failure, prompt = "", None, None, None
        try:
            prompt = self._prompt(conversation)
            plan, candidate = self._turns(conversation, prompt.messages)
            return candidate
        except BaseException as error:
            failure = str(error) or type(error).__name__
            raise
        finally:
            self._transcript.outcome(
                attempt=conversation.context.attempt_number,
                model=conversation.voice.endpoint.model.name,
                form=conversation.form.value,
                hint=conversation.hint.value,
                turns=conversation.turn,
                parent=conversation.base.candidate.id if conversation.base else None,
                plan=plan,
                candidate_id=candidate.id if candidate else None,
                failure=failure,
                prompt_tokens=prompt.tokens if prompt else None,
                tokens_by=conversation.voice.counter.method,
                left_out=prompt.left_out if prompt else (),
            )

    def _prompt(self, conversation: _Conversation) -> Prompt:
        return make_prompt(
            conversation.context,
            conversation.base,
            hardware=self._hardware,
            form=conversation.form,
            hint=conversation.hint,
            counter=conversation.voice.counter,
            budget_tokens=conversation.voice.first_prompt_tokens,
        )

    def _turns(
        self, conversation: _Conversation, messages: list[dict[str, str]]
    ) -> tuple[str, Candidate]:
        """Ask, and ask again with what is wrong, as often as is allowed."""
        fault: ReplyFault | None = None
        while True:
            try:
                reply = self._ask(conversation, messages)
            except BudgetSpent:
                if fault is None:
                    raise
                raise fault from None
            try:
                return self._candidate(conversation, reply)
            except ReplyFault as error:
                if conversation.turn > self._config.repair_turns:
                    raise
                fault = error
            messages = self._with_repair(conversation, messages[:2], reply, str(fault))

    def _with_repair(
        self, conversation: _Conversation, prompt: Messages, reply: Reply, fault: str
    ) -> list[dict[str, str]]:
        """Return the prompt, as much of the bad reply as there is room for, and what is wrong."""
        voice = conversation.voice
        repair = repair_message(fault, conversation.form, conversation.entry)
        asked = {"role": "user", "content": repair}
        room = voice.first_prompt_tokens - voice.tokens_of([*prompt, asked])
        kept = max(0, min(_REPEATED_CHARACTERS, 2 * room))  # characters; most tokens have more
        said = _as_utf8(reply.text[max(0, len(reply.text) - kept) :].replace("\0", ""))
        answer = {"role": "assistant", "content": said or "(left out)"}
        return [*map(dict, prompt), answer, asked]

    def _ask(self, conversation: _Conversation, messages: Messages) -> Reply:
        voice, context = conversation.voice, conversation.context
        seed = context.rng.getrandbits(31)
        conversation.turn += 1
        account = Account(
            self._ledger,
            context.meter,
            voice.endpoint.model,
            voice.counter,
            most=voice.most,
            asked_tokens=voice.tokens_of(messages),
            fields={
                "attempt": context.attempt_number,
                "turn": conversation.turn,
                "model": voice.endpoint.model.name,
                "endpoint": voice.endpoint.model.endpoint,
                "seed": seed,
                "temperature": self._config.temperature,
                "top_p": self._config.top_p,
                "messages": messages,
            },
        )
        return voice.endpoint.complete(
            messages,
            seed=seed,
            max_tokens=voice.reply_tokens,
            deadline=conversation.deadline,
            account=account,
        )

    def _candidate(self, conversation: _Conversation, reply: Reply) -> tuple[str, Candidate]:
        """Return the plan and the candidate of a reply.

        Raises:
            ReplyFault: there is none, or it is a program that the prompt showed.
        """
        context, base = conversation.context, conversation.base
        proposal = parse_reply(
            reply.text,
            reply.finish_reason,
            entry=conversation.entry,
            parent_source=base.candidate.source if base else None,
        )
        candidate = _make_candidate(proposal, context.backend, base)
        shown = [*context.exemplars, *context.failures, *([base] if base else [])]
        if candidate.id in {attempt.candidate.id for attempt in shown}:
            raise ReplyFault(
                "your program is one that you were shown; change something that counts"
            )
        return proposal.plan, candidate

    def _voice(
        self,
        model: ModelConfig,
        clock: Callable[[], float],
        sleep: Callable[[float], object] | None,
    ) -> _Voice:
        return _Voice(
            endpoint=Endpoint(model, self._config, clock=clock, sleep=sleep),
            counter=token_counter(model.tokenizer),
            prompt_tokens=self._config.prompt_tokens,
            reply_tokens=self._config.reply_tokens,
        )

    def _fitted(self, voice: _Voice) -> _Voice:
        """Fit prompt and reply into the context that the server tells of."""
        context = voice.endpoint.context_tokens()
        if context is None:
            return voice
        reply = min(voice.reply_tokens, context // 2)
        prompt = min(voice.prompt_tokens, context - reply)
        return _Voice(voice.endpoint, voice.counter, prompt, reply)


def hardware_for(backend: BackendName) -> str:
    """Return what is here for candidates of ``backend`` to run on, as the prompt says it."""
    found = gpus()
    if backend is BackendName.CPP or not found:
        here = f"CPU: {cpu_model()}, {cpu_count()} cores"
        return here if backend is BackendName.CPP else f"{here}; no GPU here"
    gpu = found[0]
    memory = f", {gpu.memory_mib / 1024:.0f} GiB" if gpu.memory_mib else ""
    return f"GPU: {gpu.name}, compute capability {gpu.compute_capability}{memory}"


def _make_candidate(proposal: Proposal, backend: BackendName, base: Attempt | None) -> Candidate:
    first_line = next((line for line in proposal.plan.splitlines() if line.strip()), "")
    try:
        return Candidate.create(
            proposal.source,
            backend=backend,
            proposer=LlmProposer.name,
            parents=(base.candidate.id,) if base is not None else (),
            description=_as_utf8(first_line.strip(" -*#"))[:_DESCRIPTION_CHARACTERS],
        )
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ReplyFault(f"the program cannot be read: {error}") from error


def _as_utf8(text: str) -> str:
    """Replace halves of surrogate pairs, which cannot be sent or stored."""
    return text.encode("utf-8", errors="replace").decode("utf-8")
