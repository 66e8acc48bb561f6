"""What a prompt tells, what it keeps back, and what it loses when it is too long."""

from __future__ import annotations

from typing import Any

import pytest

from evaluator.candidate import BackendName
from evaluator.evaluation import KernelResources, OutputError, Status, WorkloadCorrectness
from evaluator.problem import Contract, Entry, Output
from evaluator.workload import Workload
from evolver.proposers.base import Attempt, ProposalContext
from evolver.proposers.llm.prompt import Form, Hint, Prompt, PromptTooLong, fenced, make_prompt
from evolver.proposers.llm.tokens import token_counter
from tests.builders import make_evaluation, make_problem, make_tensor
from tests.evolver.library.builders import make_known
from tests.evolver.proposers.llm.server import make_attempt, make_context, program

SECRET = "zz-secret"


def prompt_of(
    context: ProposalContext, base: Attempt | None = None, *, budget: int = 32_768, **changes: Any
) -> Prompt:
    fields: dict[str, Any] = {"hardware": "GPU: a test's", "form": Form.FULL, "hint": Hint.TILING}
    return make_prompt(
        context, base, counter=token_counter(None), budget_tokens=budget, **{**fields, **changes}
    )


def text_of(prompt: Prompt) -> str:
    return prompt.system + prompt.user


def secretive_problem() -> Any:
    """A problem with one shown workload and one held out, of odd name and shape."""

    def workload(name: str, rows: int, **changes: Any) -> Workload:
        tensors = {"x": make_tensor(rows, 8), "residual": make_tensor(rows, 8)}
        arguments = {**tensors, "weight": make_tensor(8), "eps": 1e-6}
        return Workload(name=name, arguments=arguments, **changes)

    return make_problem(workloads=(workload("open", 32), workload(SECRET, 7919, held_out=True)))


def test_a_prompt_tells_task_hardware_and_rules() -> None:
    text = text_of(prompt_of(make_context()))
    for told in (
        "GPU: a test's", "rms_norm(x, residual, weight, eps)", "def rms_norm(",
        "float32[32, 256]", "4 times the reference's own rounding error", "boundary checks",
        "SIGNATURES", "torch, math, typing", "write the first one", "Tiling:",
    ):  # fmt: skip
        assert told in text


def test_the_parent_comes_with_its_feedback_between_the_markers() -> None:
    resources = KernelResources(
        kernel="fused", target="sm_90", registers=40, spill_bytes=16, shared_bytes=2048
    )
    parent = make_attempt(program(1.2), speedup=1.2, resources=(resources,))
    (timing, *_) = parent.evaluation.timings
    fast = timing.model_copy(update={"floor_us": 62.0, "roofline_fraction": 0.62})
    evaluation = parent.evaluation.model_copy(update={"timings": (fast,)})
    user = prompt_of(make_context(), Attempt(parent.candidate, evaluation)).user
    assert f"# EVOLVE-BLOCK-START\n{program(1.2)}# EVOLVE-BLOCK-END" in user
    for told in (
        "1.200 (1.198 to 1.202)", "100.00 µs against PyTorch's 120.00 µs",
        "62 % of the memory bandwidth's limit; bound by memory bandwidth",
        "40 registers, 16 bytes spilled, 2048 bytes of",
    ):  # fmt: skip
        assert told in user


def test_a_failure_tells_its_workload_and_the_worst_error() -> None:
    failed = make_attempt(program(-1.0), status=Status.INCORRECT)
    user = prompt_of(make_context(), failed).user
    assert "# The program to repair" in user
    assert "workload small: WRONG: output 0 differs from the reference" in user
    assert (
        "largest error 1 absolute, 1 relative, 1e+06 times what is allowed, at index [0, 0]" in user
    )


@pytest.mark.parametrize("status", [Status.OK, Status.INCORRECT, Status.TIMEOUT])
def test_held_out_workloads_never_appear(status: Status) -> None:
    loaded = secretive_problem()
    fields: dict[str, Any] = {}
    if status is not Status.OK:
        error = OutputError(name="leak", max_abs_error=1, max_rel_error=1, budget_used=9)
        fields["correctness"] = (
            WorkloadCorrectness(workload="open", passed=True, trials=1),
            WorkloadCorrectness(
                workload=SECRET, passed=False, trials=1, reason="leak", errors=(error,)
            ),
        )
        fields["message"] = f"workload {SECRET}: leak, while it hung"
    attempt = make_attempt(
        program(),
        status=status,
        problem=loaded.problem,
        log_tail="leak: the shape is (7919, 8)",
        **fields,
    )
    context = make_context(
        attempt, loaded=loaded, exemplars=[make_attempt(problem=loaded.problem)], failures=[attempt]
    )
    text = text_of(prompt_of(context, attempt))
    for secret in (SECRET, "7919", "leak"):
        assert secret not in text
    assert "open" in text


def test_the_log_of_an_attempt_that_failed_before_is_shown() -> None:
    attempt = make_attempt(
        program(), status=Status.COMPILE_ERROR, log_tail="k.cpp:3: error: expected ';'"
    )
    assert "k.cpp:3: error: expected ';'" in prompt_of(make_context(), attempt).user


def test_what_matters_least_is_left_out_first() -> None:
    parent, *others = (make_attempt(f"S = {n}\n{program() * 20}") for n in range(8))
    failed = make_attempt(f"S = 9\n{program() * 20}", status=Status.INCORRECT)
    context = make_context(parent, exemplars=others[:5], failures=[failed])
    whole = prompt_of(context, parent)
    assert whole.left_out == ()
    assert whole.user.index("S = 3\n") < whole.user.index("S = 1\n")  # the best last
    shorter = prompt_of(context, parent, budget=whole.tokens * 2 // 3)
    assert shorter.left_out[:3] == ("a failed attempt", "a diverse program", "a diverse program")
    assert shorter.tokens <= whole.tokens * 2 // 3
    assert "S = 1\n" in shorter.user
    told = make_context(parent, exemplars=others[:5], failures=[failed], known=[make_known()])
    assert prompt_of(told, parent, budget=whole.tokens + 10).left_out == ("what worked elsewhere",)
    least = prompt_of(context, parent, budget=whole.tokens // 3)
    assert "S = 1\n" not in least.user
    assert "S = 0\n" in least.user
    with pytest.raises(PromptTooLong, match="estimate"):
        prompt_of(context, parent, budget=500)


def test_what_worked_elsewhere_is_told_of_three_at_most() -> None:
    known = [make_known(plan=f"Plan number {n}.", low=1.4) for n in range(5)]
    user = prompt_of(make_context(known=known)).user
    assert (
        "1.50 times as fast (1.40 to 1.61), code with norm, reduction on cpu: Plan number 0."
        in user
    )
    assert "-BLOCK = 64\n+BLOCK = 128" in user
    assert ("Plan number 2." in user, "Plan number 3." in user) == (True, False)
    assert "somewhere/else" not in user
    assert "What made other programs faster" not in prompt_of(make_context()).user


def test_a_program_cannot_close_its_fence() -> None:
    assert fenced("a\n````\nb\n") == "`````python\na\n````\nb\n`````"


@pytest.mark.parametrize(
    ("backend", "told"),
    [(BackendName.TRITON, "@triton.jit"), (BackendName.CUDA, "`void*`, the stream")],
)
def test_every_language_has_its_rules(backend: BackendName, told: str) -> None:
    assert told in prompt_of(make_context(backend=backend)).system


def test_classes_and_writes_are_told() -> None:
    loaded = make_problem(
        entry=Entry(
            function="forward", class_name="Model", candidate_function="ModelNew", constructor=(4,)
        ),
        contract=Contract(outputs=(Output(alias_of="x"),), returns_tuple=False, writes=("x",)),
    )
    system = prompt_of(make_context(loaded=loaded), form=Form.DIFF).system
    assert "the class `ModelNew` with the method `forward`" in system
    assert "nor that x is modified in place" in system
    assert "<<<<<<< SEARCH" in system


def test_unmeasured_attempts_can_be_shown_too() -> None:
    attempt = make_attempt(program(), status=Status.NOT_MEASURED)
    assert attempt.evaluation == make_evaluation(attempt.candidate, status=Status.NOT_MEASURED)
    assert "# The program to improve" in prompt_of(make_context(), attempt).user
