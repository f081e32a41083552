"""`calculate`: exact arithmetic on numbers or an expression.

A number returns its properties, an expression its exact value as a fraction. A division by zero
(`{"type": "calculate", "data": "1 / 0"}`) fails on purpose and is retried like any error; an invalid expression is not
retried, because a retry cannot help.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from firmq.worker.handlers.registry import task
from firmq.worker.handlers.signals import GiveUp

_OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: lambda a, b: Fraction(a // b),
    ast.Mod: operator.mod,
}
_MOST_DIGITS = 2000
_LONGEST = 10_000


@task("calculate", timeout=30)
def calculate(data: int | float | str) -> dict[str, Any]:
    """Returns the value of an expression such as "1/3 + 2 ** 10", or of a number; for whole ones also their factors."""
    value = Fraction(str(data)) if isinstance(data, int | float) else _evaluate(data)
    result: dict[str, Any] = {"value": _text(value), "decimal": _decimal(value)}
    if value.denominator == 1 and 1 < value <= 10**12:
        result["factors"] = _factors(int(value))
    return result


def _evaluate(text: str) -> Fraction:
    if len(text) > _LONGEST:
        raise GiveUp(f"the expression has {len(text)} characters; at most {_LONGEST} are allowed")
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError, ValueError) as error:
        raise GiveUp(f"{text[:100]!r} is not an expression: {getattr(error, 'msg', error)}") from error


def _value(node: ast.expr) -> Fraction:
    """Returns the value of a parsed expression; only numbers and arithmetic are evaluated."""
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return Fraction(str(number))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(_value(left), _value(right))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _bounded(_OPERATORS[type(op)](_value(left), _value(right)))
        case _:
            raise GiveUp(f"{ast.unparse(node)[:100]!r} is not arithmetic: use numbers, + - * / // % ** and brackets")


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        raise GiveUp("only whole exponents have an exact value")
    size = max(abs(base.numerator), base.denominator)
    if abs(exponent) > 1_000_000 or abs(int(exponent)) * math.log10(size or 1) > _MOST_DIGITS:
        raise GiveUp(f"the result has more than {_MOST_DIGITS} digits")
    return Fraction(base ** int(exponent))


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > _MOST_DIGITS * 3.4:
        raise GiveUp(f"the result has more than {_MOST_DIGITS} digits")
    return value


def _text(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else f"{value.numerator}/{value.denominator}"


def _decimal(value: Fraction) -> float | None:
    """Returns the nearest floating-point number, or None outside their range."""
    try:
        return float(value)
    except OverflowError:
        return None


def _factors(number: int) -> list[int]:
    """Returns prime factors in order, by trial division: at most a million steps for 10**12."""
    factors, divisor = [], 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            factors.append(divisor)
            number //= divisor
        divisor += 1 if divisor == 2 else 2
    return [*factors, number] if number > 1 else factors
