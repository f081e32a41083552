"""A decorated function is called as before, and `submit` makes its arguments the data of a task."""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
import pickle
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field, Json, ValidationError, computed_field
from pydantic_core import PydanticSerializationError

from firmq.shared.client import Accepted, TaskState
from firmq.shared.domain.json_schema import compile_schema
from firmq.worker.handlers.default_client import use_client
from firmq.worker.handlers.registry import HandlerError, Registry, task

REGISTRY = Registry()


class FakeClient:
    """Remembers what was submitted."""

    def __init__(self) -> None:
        self.submitted: list[tuple[str, Any, dict[str, Any]]] = []

    def submit(self, task_type: str, data: Any = None, **options: Any) -> Accepted:
        self.submitted.append((task_type, data, {name: it for name, it in options.items() if it is not None}))
        return Accepted(task_id="1", status=TaskState.PENDING, type=task_type, queue="normal")


@pytest.fixture
def client() -> Iterator[FakeClient]:
    fake = FakeClient()
    before = use_client(fake)
    yield fake
    use_client(*before)


@task("send-invoice", registry=REGISTRY)
def send_invoice(order: int, copies: int = 1) -> str:
    """Sends one invoice."""
    return f"invoice {order}, {copies} copies"


@task("keep", registry=REGISTRY)
def keep(order: dict[str, int]) -> None: ...


@task("fetch", registry=REGISTRY)
async def fetch(url: str) -> int:
    return len(url)


@task("anything", registry=REGISTRY)
def anything(data: list[date] | None = None) -> None: ...


class Colour(Enum):
    RED = "red"


@dataclass
class Address:
    street: str
    since: date


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"


class Customer(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(alias="fullName")
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def initial(self) -> str:
        return self.name[0]


@task("everything", registry=REGISTRY)
def everything(
    moment: datetime,
    pause: timedelta,
    price: Decimal,
    colour: Colour,
    address: Address,
    customer: Customer,
    key: UUID,
    parts: set[int],
    raw: Json[list[int]],
    free: Any,
    short: Annotated[int, Field(alias="s")],
) -> None: ...


def test_a_handler_is_called_as_before() -> None:
    assert send_invoice(7) == "invoice 7, 1 copies"
    assert send_invoice(order=7, copies=2) == "invoice 7, 2 copies"
    assert asyncio.run(fetch("http://a")) == 8


def test_a_handler_looks_like_its_function() -> None:
    assert (send_invoice.__name__, send_invoice.__doc__) == ("send_invoice", "Sends one invoice.")
    assert (send_invoice.__module__, send_invoice.__qualname__) == (__name__, "send_invoice")
    assert str(inspect.signature(send_invoice)) == "(order: 'int', copies: 'int' = 1) -> 'str'"
    assert typing.get_type_hints(send_invoice) == {"order": int, "copies": int, "return": str}
    assert inspect.unwrap(send_invoice) is send_invoice.__wrapped__ is REGISTRY.handlers["send-invoice"].function
    assert repr(send_invoice) == f"<task send-invoice: {__name__}.send_invoice>"


def test_a_coroutine_function_stays_one() -> None:
    assert inspect.iscoroutinefunction(fetch)
    assert not inspect.iscoroutinefunction(send_invoice)


def test_a_handler_is_pickled_and_copied_as_a_function_is() -> None:
    assert pickle.loads(pickle.dumps(send_invoice)) is send_invoice
    assert copy.deepcopy(send_invoice) is send_invoice


def test_a_handler_can_be_the_handler_of_a_second_type() -> None:
    task("twice", registry=REGISTRY)(send_invoice)
    assert REGISTRY.handlers["twice"].call({"order": 7}) == "invoice 7, 1 copies"


def test_the_decorator_without_a_name_is_refused() -> None:
    with pytest.raises(HandlerError, match="needs the name of a task type"):
        task(lambda: None)  # type: ignore[arg-type]


def test_the_arguments_are_the_members_of_the_data(client: FakeClient) -> None:
    assert send_invoice.submit(order=7).task_id == "1"
    send_invoice.submit(7, copies=2)
    assert client.submitted == [
        ("send-invoice", {"order": 7}, {}),
        ("send-invoice", {"order": 7, "copies": 2}, {}),
    ]


def test_the_only_parameter_data_is_the_whole_value(client: FakeClient) -> None:
    anything.submit([date(2024, 2, 29)])
    anything.submit()
    assert client.submitted == [("anything", ["2024-02-29"], {}), ("anything", None, {})]


def test_what_is_submitted_is_what_the_handler_reads(client: FakeClient) -> None:
    given = {
        "moment": datetime(2024, 2, 29, 12, tzinfo=UTC),
        "pause": timedelta(minutes=90),
        "price": Decimal("9.90"),
        "colour": Colour.RED,
        "address": Address("Elm Street", date(1984, 11, 9)),
        "customer": Customer(fullName="Ann", pet=Cat()),
        "key": UUID(int=7),
        "parts": {1, 2},
        "free": {"any": [1, None]},
        "short": 3,
    }
    everything.submit(**given, raw="[1, 2]")  # type: ignore[arg-type]  # the same, by name
    [(_, data, _)] = client.submitted
    handler = REGISTRY.handlers["everything"]
    assert list(compile_schema(handler.schema).iter_errors(data)) == []
    assert data["customer"] == {"fullName": "Ann", "pet": {"kind": "cat", "lives": 9}}
    assert data["price"] == "9.90"
    assert handler.read(json.dumps(data).encode()) == {**given, "raw": [1, 2]}


@pytest.mark.parametrize(
    ("args", "kwargs", "error", "text"),
    [
        ((), {}, TypeError, r"send_invoice\(\): missing a required argument: 'order'"),
        ((7,), {"order": 7}, TypeError, "multiple values for argument 'order'"),
        ((7,), {"colour": "red"}, TypeError, "unexpected keyword argument 'colour'"),
        (("seven",), {}, ValidationError, "order\n  Input should be a valid integer"),
    ],
)
def test_wrong_arguments_are_not_sent(
    client: FakeClient, args: Any, kwargs: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        send_invoice.submit(*args, **kwargs)
    with pytest.raises(error, match=text):
        asyncio.run(send_invoice.submit_async(*args, **kwargs))
    assert client.submitted == []


def test_a_value_without_a_json_form_is_not_sent(client: FakeClient) -> None:
    @task("free", registry=REGISTRY)
    def free(it: object) -> None: ...

    with pytest.raises(PydanticSerializationError):
        free.submit(object())
    assert client.submitted == []


def test_options_are_added_to_those_before(client: FakeClient) -> None:
    later = send_invoice.options(delay=60, priority="low", idempotency_key="a")
    later.options(priority="high", unique_key="7").submit(order=7)
    later.submit(order=8)
    send_invoice.submit(order=9)
    assert [options for _, _, options in client.submitted] == [
        {"delay": 60, "priority": "high", "unique_key": "7", "idempotency_key": "a"},
        {"delay": 60, "priority": "low", "idempotency_key": "a"},
        {},
    ]


def test_a_given_client_is_used_in_place_of_the_default_one(client: FakeClient) -> None:
    given = FakeClient()
    send_invoice.options(client=given).options(delay=1).submit(order=7)
    assert (len(given.submitted), len(client.submitted)) == (1, 0)


def test_a_task_of_a_batch_has_the_options_and_is_not_sent(client: FakeClient) -> None:
    made = send_invoice.options(delay=timedelta(minutes=1)).new_task(order=7)
    assert made == {"type": "send-invoice", "data": {"order": 7}, "delay": 60.0}
    with pytest.raises(ValueError, match="give them to the batch"):
        send_invoice.options(idempotency_key="a").new_task(order=7)
    assert client.submitted == []


def test_a_prepared_submission_has_checked_its_arguments_and_copied_them(client: FakeClient) -> None:
    order = {"amount": 7}
    submit = keep.options(priority="high").prepare(order)
    order["amount"] = 8
    assert client.submitted == []
    submit()
    assert client.submitted == [("keep", {"order": {"amount": 7}}, {"priority": "high"})]
    with pytest.raises(ValidationError):
        keep.prepare("none")  # type: ignore[arg-type]
