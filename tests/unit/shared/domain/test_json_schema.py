"""What compiled schemas accept, and what they cost."""

from __future__ import annotations

import time
from typing import Any

import pytest

from firmq.shared.domain.json_schema import compile_schema


def test_each_mistake_has_its_place() -> None:
    schema = {"type": "object", "properties": {"amount": {"type": "integer"}}}
    [mistake] = compile_schema(schema).iter_errors({"amount": "3"})
    assert list(mistake.instance_path) == ["amount"]
    assert compile_schema(schema).is_valid({"amount": 3})


def test_a_pattern_is_matched_in_linear_time() -> None:
    validator = compile_schema({"type": "string", "pattern": "^(a+)+$"})
    began = time.process_time()
    assert not validator.is_valid("a" * 50_000 + "!")
    assert time.process_time() - began < 1


@pytest.mark.parametrize("schema", [{"type": "nonsense"}, {"pattern": "("}, {"$ref": "http://localhost:1/schema"}])
def test_a_schema_that_cannot_be_used_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="cannot be compiled"):
        compile_schema(schema)
