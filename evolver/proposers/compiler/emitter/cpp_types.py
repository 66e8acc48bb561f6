"""Types of generated C++ expressions, and what typing lets one drop.

Inductor writes a cast around almost every operation, since it works on text. With the type
of every operand known, casts that change nothing go, literals get their suffix, and torch's
own types become the plain structs of the prelude.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from .cpp_expression import (
    Binary,
    Braces,
    Call,
    Cast,
    CastLike,
    Conditional,
    Expression,
    Index,
    Member,
    Name,
    Number,
    Unary,
    Untranslatable,
    names_in,
)

Typed = tuple[Expression, str]

_CANONICAL = {
    "at::BFloat16": "bfloat16",
    "c10::BFloat16": "bfloat16",
    "at::Half": "half",
    "c10::Half": "half",
    "long": "int64_t",
}
REDUCED = ("bfloat16", "half")
FLOATING = (*REDUCED, "float", "double")
_RANK = ("bool", "int8_t", "uint8_t", "int16_t", "int", "int32_t", "int64_t", "float", "double")
_COMPARISONS = ("==", "!=", "<", ">", "<=", ">=", "&&", "||")
_SAME_TYPE = frozenset(
    [
        "std::exp",
        "std::exp2",
        "std::expm1",
        "std::log",
        "std::log2",
        "std::log10",
        "std::log1p",
        "std::sqrt",
        "std::tanh",
        "std::erf",
        "std::erfc",
        "std::lgamma",
        "std::sin",
        "std::cos",
        "std::tan",
        "std::asin",
        "std::acos",
        "std::atan",
        "std::sinh",
        "std::cosh",
        "std::asinh",
        "std::acosh",
        "std::atanh",
        "std::floor",
        "std::ceil",
        "std::trunc",
        "std::round",
        "std::nearbyint",
        "std::abs",
        "std::fabs",
        "std::cbrt",
    ]
)
_COMMON_TYPE = frozenset(
    [
        "std::pow",
        "std::fmod",
        "std::atan2",
        "std::hypot",
        "std::copysign",
        "std::max",
        "std::min",
        "max_propagate_nan",
        "min_propagate_nan",
    ]
)
_PREDICATES = frozenset(["std::isnan", "std::isinf", "std::isfinite", "std::signbit"])


def canonical_type(name: str) -> str:
    """The type's name in the cleaned source; pointers keep their ``*``."""
    bare = name.replace("const", "").strip()
    element, star = (bare[:-1].strip(), "*") if bare.endswith("*") else (bare, "")
    return _CANONICAL.get(element, element) + star


def typed(expression: Expression, scope: Mapping[str, str]) -> Typed:
    """Return the expression without casts that change nothing, and its type.

    ``scope`` has the type of each variable in sight.

    Raises:
        Untranslatable: an unknown variable or helper function.
    """
    match expression:
        case Number(text):
            return _number(text)
        case Name(name):
            if name not in scope:
                raise Untranslatable(f"the type of {name!r} is not known")
            return expression, scope[name]
        case Cast(type_name, operand, _):
            return cast_to(canonical_type(type_name), typed(operand, scope))
        case CastLike(model, operand):
            return cast_to(typed(model, scope)[1], typed(operand, scope))
        case Call():
            return _call(expression, scope)
    return _typed_operation(expression, scope)


def _typed_operation(expression: Expression, scope: Mapping[str, str]) -> Typed:
    match expression:
        case Unary(operator, operand):
            return _unary(operator, typed(operand, scope))
        case Binary(operator, left, right):
            return _binary(operator, typed(left, scope), typed(right, scope))
        case Conditional(condition, then, otherwise):
            return _conditional(condition, then, otherwise, scope)
        case Index(base, index):
            pointer = typed(base, scope)[1]
            place = tidy_index(typed(index, scope)[0])
            return Index(base, place), pointer.removesuffix("*")
        case Member(base, field):
            return expression, _field_type(typed(base, scope)[1], field)
        case Braces(type_name, items):
            return Braces(type_name, tuple(typed(i, scope)[0] for i in items)), type_name
    raise Untranslatable(f"unknown expression {expression!r}")


def _number(text: str) -> Typed:
    if re.search(r"[.eE]", text) and not text.lower().startswith("0x"):
        is_single = text[-1] in "fF"
        return Number(text), "float" if is_single else "double"
    bare = text.rstrip("lLuU")
    return Number(bare), "int64_t" if bare != text else "int"


def cast_to(target: str, value: Typed) -> Typed:
    """``value`` as ``target``, by the shortest text that means it."""
    expression, source = value
    if source == target:
        return value
    if isinstance(expression, Number):
        literal = _literal(expression.text, source, target)
        if literal is not None:
            return literal, target
    if target in REDUCED and source != "float":
        return Cast(target, cast_to("float", value)[0]), target
    if source in REDUCED and target != "float":
        return cast_to(target, (Cast("float", expression, source), "float"))
    if target == "uint8_t" and source in FLOATING:
        # A negative float has no defined conversion to an unsigned type; torch goes this way.
        return Cast(target, Cast("int64_t", expression)), target
    return Cast(target, expression, source if source in REDUCED else ""), target


def _literal(text: str, source: str, target: str) -> Number | None:
    is_integer = source in ("int", "int64_t")
    if target == "float":
        return Number(f"{text}.0f" if is_integer else f"{text.rstrip('fF')}f")
    if target == "double" and is_integer:
        return Number(f"{text}.0")
    if target in ("int64_t", "int32_t", "int") and is_integer:
        return Number(text)
    return None


def _unary(operator: str, operand: Typed) -> Typed:
    expression, type_name = operand
    if operator == "&":
        return Unary("&", expression), type_name + "*"
    if operator == "!":
        return Unary("!", _widened(operand)[0]), "bool"
    if type_name in REDUCED:
        expression, type_name = _widened(operand)
    promoted = "int" if type_name in ("bool", "int8_t", "uint8_t", "int16_t") else type_name
    return Unary(operator, expression), promoted


def _widened(value: Typed) -> Typed:
    return cast_to("float", value) if value[1] in REDUCED else value


def _binary(operator: str, left: Typed, right: Typed) -> Typed:
    (a, a_type), (b, b_type) = _widened(left), _widened(right)
    if operator in _COMPARISONS:
        return Binary(operator, a, b), "bool"
    if operator in ("&", "|", "^") and a_type == b_type == "bool":
        return Binary(operator, a, b), "bool"
    common = common_type(a_type, b_type)
    return Binary(operator, a, b), "int" if common in _RANK[:4] else common


def common_type(left: str, right: str) -> str:
    """The type of an arithmetic operation on two types.

    Raises:
        Untranslatable: a type that takes no part in arithmetic here.
    """
    if left == right:
        return left
    if left not in _RANK or right not in _RANK:
        raise Untranslatable(f"no common type of {left} and {right}")
    return max(left, right, key=_RANK.index)


def _conditional(
    condition: Expression, then: Expression, otherwise: Expression, scope: Mapping[str, str]
) -> Typed:
    test = _widened(typed(condition, scope))[0]
    (a, a_type), (b, b_type) = typed(then, scope), typed(otherwise, scope)
    if a_type != b_type:
        (a, a_type), (b, b_type) = _widened((a, a_type)), _widened((b, b_type))
    return Conditional(test, a, b), common_type(a_type, b_type)


def _call(call: Call, scope: Mapping[str, str]) -> Typed:
    name = call.function
    if not call.arguments and name in scope:
        return call, scope[name]
    limits = re.fullmatch(r"std::numeric_limits<(.+)>::\w+", name)
    if limits:
        return call, canonical_type(limits.group(1))
    arguments = [typed(a, scope) for a in call.arguments]
    plain = [_widened(a) for a in arguments]
    expressions = tuple(e for e, _ in plain)
    if name in _SAME_TYPE:
        type_name = plain[0][1]
        return Call(name, expressions), type_name if name == "std::abs" else _real(type_name)
    if name in _PREDICATES:
        return Call(name, expressions), "bool"
    if name in _COMMON_TYPE:
        return _common_call(name, plain)
    if name == "c10::div_floor_integer":
        return _floor_division(expressions), "int64_t"
    if name in ("argmax_combine", "argmin_combine"):
        return Call(name, expressions), arguments[0][1]
    if name == "atomic_add":
        if arguments[0][1].removesuffix("*") in REDUCED:
            raise Untranslatable("an atomic addition in a 16 bit type")
        return Call(name, expressions), "void"
    raise Untranslatable(f"the helper function {name!r} of Inductor has no counterpart here")


def _real(type_name: str) -> str:
    return type_name if type_name in FLOATING else "double"


def _common_call(name: str, arguments: list[Typed]) -> Typed:
    common = arguments[0][1]
    for _, type_name in arguments[1:]:
        common = common_type(common, type_name)
    if name in ("std::pow", "std::fmod", "std::atan2", "std::hypot"):
        common = _real(common)
    elif any(type_name != common for _, type_name in arguments) or common == "int64_t":
        # Template deduction would find two types where casts went away.
        name = f"{name}<{common}>"
    return Call(name, tuple(e for e, _ in arguments)), common


def _floor_division(operands: tuple[Expression, ...]) -> Expression:
    left, right = operands
    if not _may_be_negative(left) and not _may_be_negative(right):
        return Binary("/", left, right)
    return Call("floor_divide", operands)


def _may_be_negative(expression: Expression) -> bool:
    """Loop variables and sizes never are; differences, negations and loaded values may be."""
    if isinstance(expression, Unary) or (
        isinstance(expression, Binary) and expression.operator == "-"
    ):
        return True
    match expression:
        case Name(name):
            return not re.fullmatch(r"x\d+|ks\d+", name)
        case Number():
            return False
        case Binary(_, left, right):
            return _may_be_negative(left) or _may_be_negative(right)
    return True


def _field_type(struct: str, field: str) -> str:
    if struct.startswith("IndexValue<"):
        return "int64_t" if field == "index" else struct[len("IndexValue<") : -1]
    raise Untranslatable(f"no field {field!r} known in {struct}")


def tidy_index(expression: Expression) -> Expression:
    """A sum of products with the largest step first and the constant last."""
    terms = _terms(expression, 1)
    ordered = sorted(terms, key=_term_order)
    result: Expression | None = None
    for sign, term in ordered:
        if result is None:
            result = term if sign > 0 else Unary("-", term)
        else:
            result = Binary("+" if sign > 0 else "-", result, term)
    assert result is not None
    return result


def _terms(expression: Expression, sign: int) -> list[tuple[int, Expression]]:
    match expression:
        case Binary("+", left, right):
            return _terms(left, sign) + _terms(right, sign)
        case Binary("-", left, right):
            return _terms(left, sign) + _terms(right, -sign)
        case Unary("-", operand):
            return _terms(operand, -sign)
        case Binary("*", Number(), Name() as name) as product:
            return [(sign, Binary("*", name, product.left))]
    return [(sign, expression)]


def _term_order(term: tuple[int, Expression]) -> tuple[int, float, int]:
    sign, expression = term
    names = names_in(expression)
    if not names:
        return (2, 0, -sign)
    numbers = re.findall(r"\d+", str(expression.right)) if isinstance(expression, Binary) else []
    step = float(numbers[0]) if numbers else 1.0
    return (0 if sign > 0 else 1, -step, len(names))
