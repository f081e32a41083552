"""Data, a word of a search, and whether it matches: for the search in Redis, and for that in the history."""

from __future__ import annotations

CASES: tuple[tuple[str, str, bool], ...] = (
    ('{"customer": 42}', "customer:42", True),
    ('{"customer": 43}', "customer:42", False),
    ('{"other": 42, "nested": {"customer": 42}}', "customer:42", False),
    ('{"customer":{"id":42}}', "customer.id:42", True),
    ('{"customer":{"id":42}}', "customer:42", False),
    # Numbers compare by value, and every digit counts.
    ('{"n": 1}', "n:1.0", True),
    ('{"n": 1.0}', "n:1", True),
    ('{"n": 10e-1}', "n:1", True),
    ('{"n": 0.1E1}', "n:1", True),
    ('{"n": -0.0}', "n:0", True),
    ('{"n": 120}', "n:1.2e2", True),
    ('{"n": 1.5}', "n:1", False),
    ('{"n": -1}', "n:1", False),
    ('{"n": 9007199254740993}', "n:9007199254740993", True),
    ('{"n": 9007199254740993}', "n:9007199254740992", False),
    ('{"n": 123456789012345678901234567890}', "n:123456789012345678901234567890", True),
    ('{"n": 123456789012345678901234567891}', "n:123456789012345678901234567890", False),
    ('{"n": 0.1}', "n:0.10", True),
    # A value without quotes matches the text too; one in quotes is a text only.
    ('{"n": "1"}', "n:1", True),
    ('{"n": "1.0"}', "n:1", False),
    ('{"n": "1"}', 'n:"1"', True),
    ('{"n": 1}', 'n:"1"', False),
    ('{"n": true}', "n:true", True),
    ('{"n": "true"}', "n:true", True),
    ('{"n": true}', 'n:"true"', False),
    ('{"n": true}', "n:1", False),
    ('{"n": null}', "n:null", True),
    ('{"n": false}', "n:null", False),
    ('{"m": 1}', "n:null", False),
    # Texts.
    ('{"name": "Zo\\u00eb \\"Z\\" {1, 2]"}', 'name:"Zoë \\"Z\\" {1, 2]"', True),
    ('{"name": "Zoë"}', "name:Zoë", True),
    ('{"n\\u0061me": "x"}', "name:x", True),
    ('{"name": "x,\\"a\\":1", "a": 2}', "a:1", False),
    ('{"name": "x,\\"a\\":1", "a": 2}', "a:2", True),
    ('{"name": "abc"}', "name:ab", False),
    ('{"a\\\\": 1, "b": 2}', "b:2", True),
    # Lists count by their items; an object is no value.
    ('{"tags": ["a", {"tags": "c"}, ["d"], "b"]}', "tags:b", True),
    ('{"tags": ["a", {"tags": "c"}, ["d"]]}', "tags:c", False),
    ('{"tags": ["a", ["d"]]}', "tags:d", False),
    ('{"tags": []}', "tags:a", False),
    ('{"list": [{"id": 1}]}', "list.id:1", False),
    ("[1, 2]", "n:1", False),
    ("null", "n:null", False),
    ('"n"', "n:n", False),
    # Spaces, empty objects, and the last of several equal names, as parsers have it.
    ('{ "a" : { } , "n" :\n 7 }', "n:7", True),
    ('{"a":[],"n":7}', "n:7", True),
    ('{"n": 1, "n": 2}', "n:2", True),
    ('{"n": 1, "n": 2}', "n:1", False),
)
