"""What search adds to tables of other tests: `tests.support.features.rows` finds it by its name."""

from __future__ import annotations

from flask.testing import FlaskClient

FILTERED = ("/breakdown",)
VISIBLE = ("/breakdown?type=process",)
BY_FIELD = ("/breakdown", "/breakdown.csv")
SHOWN = ("/breakdown?status=failed",)
VALUES = (
    *("/breakdown", "/breakdown?field=body", "/breakdown.csv?field=body"),
    *(f"/suggestions?search=data.{word}" for word in ("", "body:", "result_base64:", "user:")),
)
PAGES_OF_DATA = ("/breakdown",)
PAGES_OF_HIDDEN_FIELDS = ("/breakdown?field=result_base64",)


def _customers(http: FlaskClient, query: dict[str, str]) -> dict[str, int]:
    found = http.get("/breakdown", query_string={"field": "customer", **query}).get_json()
    csv = http.get("/breakdown.csv", query_string={"field": "customer", **query}).data
    assert csv.count(b"\n") == 1 + len(found["fields"][0]["values"])
    return {each["value"]: each["tasks"] for each in found["fields"][0]["values"]}


CUSTOMERS = (_customers,)
