"""The text of the test that goes with the kernel: the kernel against the original function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from evaluator.candidate import Candidate
from evaluator.problem import Contract, Output, OutputKind, Problem
from evaluator.workload import ArgumentValue, TensorSpec, ValueKind, Values
from integrations.patch.guard import Case
from integrations.patch.layout import Layout
from integrations.patch.samples import Sample, outside_sample, samples_of
from integrations.patch.site import FunctionSite

_TEMPLATES = Path(__file__).parent / "templates"
_USED_BY_KIND = {
    ValueKind.NORMAL: ("mean", "std"),
    ValueKind.UNIFORM: ("low", "high"),
    ValueKind.INTEGERS: ("low", "high"),
    ValueKind.TIES: ("high",),
    ValueKind.CONSTANT: ("low",),
    ValueKind.ARANGE: ("low",),
    ValueKind.PERMUTATION: (),
    ValueKind.CAPTURED: ("data",),
}


@dataclass(frozen=True)
class _Recipes:
    name: str
    recipes: tuple[tuple[str, str], ...]


def render_behaviour_test(
    problem: Problem,
    candidate: Candidate,
    cases: Sequence[Case],
    site: FunctionSite,
    layout: Layout,
    *,
    qualname: str,
) -> str:
    """Return the test's text, with ``\\n`` newlines."""
    # The output is Python, not HTML: nothing is to be escaped.
    loader = FileSystemLoader(_TEMPLATES)
    environment = Environment(  # noqa: S701
        loader=loader, undefined=StrictUndefined, keep_trailing_newline=True
    )
    class_name, _, function = qualname.rpartition(".")
    outside = outside_sample(cases)
    outputs = problem.contract.outputs
    text = environment.get_template("behaviour_test.py.j2").render(
        header="".join(f"{line}\n" for line in site.leading_comments),
        qualname=qualname,
        imports=_imports(layout),
        backend=candidate.backend.value,
        parameters=repr(list(problem.parameters)).replace("'", '"'),
        written=repr(list(problem.contract.writes)).replace("'", '"'),
        samples=[_recipes(s) for s in samples_of(cases)],
        outside=_recipes(outside) if outside else None,
        class_name=class_name,
        function=function,
        target_alias="target",
        state=repr(list(problem.state)).replace("'", '"'),
        is_async=site.is_async,
        call_arguments=_call_arguments(problem, site),
        await_open="asyncio.run(" if site.is_async else "",
        await_close=")" if site.is_async else "",
        entry=problem.entry.candidate_function,
        has_choices=any(o.kind is OutputKind.INDICES for o in outputs),
        any_order_free=any(o.order_free_dim is not None for o in outputs),
        comparison=_comparison(problem.contract),
        returns_none=problem.contract.returns_none,
    )
    return text.rstrip() + "\n"


def _imports(layout: Layout) -> str:
    lines: list[str] = []
    for dotted, alias in ((layout.target_module, "target"), (layout.kernel_module, "kernel")):
        package, _, name = dotted.rpartition(".")
        line = (
            f"from {package} import {name} as {alias}" if package else f"import {name} as {alias}"
        )
        lines.append(line)
    return "\n".join(lines)


def _call_arguments(problem: Problem, site: FunctionSite) -> str:
    return ", ".join(
        f'{name}=arguments["{name}"]' if name in site.keyword_only else f'arguments["{name}"]'
        for name in site.parameters
        if name in problem.arguments
    )


def _recipes(sample: Sample) -> _Recipes:
    listed = tuple((name, _recipe(value)) for name, value in sample.arguments.items())
    return _Recipes(sample.name, listed)


def _recipe(value: ArgumentValue) -> str:
    if not isinstance(value, TensorSpec):
        return repr(value)
    if value.alias_of is not None:
        return f'{{"alias_of": "{value.alias_of}"}}'
    fields = {
        "shape": repr(value.shape),
        "dtype": f"torch.{value.dtype.value}",
        "kind": f'"{value.values.kind.value}"',
        **_used_fields(value.values),
    }
    if value.strides is not None:
        fields["strides"] = repr(value.strides)
    return "{" + ", ".join(f'"{key}": {text}' for key, text in fields.items()) + "}"


def _used_fields(values: Values) -> dict[str, str]:
    default = Values()
    return {
        name: repr(getattr(values, name))
        for name in _USED_BY_KIND[values.kind]
        if getattr(values, name) != getattr(default, name)
    }


def _comparison(contract: Contract) -> list[str]:
    """Statements that compare ``actual`` and ``expected``, output by output."""
    lines: list[str] = []
    chosen = {o.selects for o in contract.outputs if o.selects is not None}
    for number, output in enumerate(contract.outputs):
        if output.kind is OutputKind.INDICES:
            lines += _choice(number, output, contract)
        elif number not in chosen:
            lines.append(_plain(number, output))
    return lines or ["assert not actual"]


def _plain(number: int, output: Output) -> str:
    if output.order_free_dim is None:
        return f"check(actual[{number}], expected[{number}])"
    sorting = f".sort(dim={output.order_free_dim})[0]"
    return f"check(actual[{number}]{sorting}, expected[{number}]{sorting})"


def _choice(number: int, output: Output, contract: Contract) -> list[str]:
    assert output.selects is not None
    values = contract.outputs[output.selects]
    free = output.order_free_dim if output.order_free_dim is not None else values.order_free_dim
    return [
        "swapped = check_choice(",
        *[f"    {side}[{output.selects}], {side}[{number}]," for side in ("actual", "expected")],
        f"    dim={-1 if free is None else free}, ordered={free is None},",
        ")",
        "assert ties or swapped <= 0.01",
    ]
