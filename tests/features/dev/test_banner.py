"""What `firmq dev` shows when all is ready, and what it watches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from firmq.shared.config.settings import Settings
from firmq.shared.features.dev import main
from firmq.shared.features.dev.main import Handlers, Part, banner, places_to_watch

GREET = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def handlers(types: dict[str, Any], *places: Path, examples: bool = False) -> Handlers:
    return Handlers(modules=["shop.tasks"], types=types, places=places, are_examples=examples)


def shown(of: Handlers, gateway: int = 8000, **options: bool) -> str:
    ports = {"gateway": gateway, "dashboard": 2, "worker": 3, "housekeeper": 4}
    parts = [Part(name, "", True, port) for name, port in ports.items()]
    return banner(parts, "here", of, **{"needs_key": False, "reloads": True, **options})


def test_the_first_type_is_the_one_to_try() -> None:
    text = shown(handlers({"greet": GREET, "other": {}}))
    assert "Handlers    greet, other (shop.tasks); reloaded when a .py file changes" in text
    assert """submit greet '{"name": "some text"}' --watch""" in text
    assert """-d '{"type": "greet", "data": {"name": "some text"}}'""" in text
    assert "--url" not in text


def test_another_port_is_part_of_the_command() -> None:
    assert "--url http://localhost:9000 submit greet" in shown(handlers({"greet": GREET}), gateway=9000)


def test_a_key_is_part_of_the_commands_where_it_is_needed() -> None:
    text = shown(handlers({"greet": GREET}), needs_key=True)
    assert "FIRMQ_API_KEY=$KEY " in text
    assert '-H "Authorization: Bearer $KEY"' in text


def test_without_modules_it_says_how_to_give_one() -> None:
    text = shown(handlers({"calculate": {}, "process": {}}, examples=True))
    assert "submit process '\"some text\"'" in text
    assert "Run your own handlers with: firmq dev PACKAGE.MODULE" in text


def test_modules_without_task_types_get_a_hint() -> None:
    text = shown(handlers({}))
    assert "Handlers    none (shop.tasks)" in text
    assert '@task("NAME")' in text


def test_many_types_are_counted() -> None:
    assert "t7 and 4 more (shop.tasks)\n" in shown(handlers({f"t{n}": {} for n in range(12)}), reloads=False)


def test_the_folder_and_packages_outside_of_it_are_watched(tmp_path: Path) -> None:
    inside, outside = tmp_path / "project" / "shop", tmp_path / "src" / "other"
    installed, ours = tmp_path / "lib" / "site-packages" / "third", Path(main.__file__).parents[3] / "worker"
    found = places_to_watch(handlers({}, inside, outside, installed, ours), tmp_path / "project")
    assert found == [tmp_path / "project", outside]


def test_a_home_directory_is_not_watched(tmp_path: Path) -> None:
    shop = Path.home() / "shop"
    assert places_to_watch(handlers({}, shop), Path.home()) == [shop]


def test_an_outbox_has_a_relay() -> None:
    of_django, settings = replace(handlers({}), has_outbox=True), Settings()
    with_database = Settings(outbox_database="sqlite:///shop.db")
    names = [[part.name for part in main.parts_of(*each)] for each in ((settings, handlers({})), (settings, of_django))]
    assert [each[4:] for each in names] == [[], ["relay"]]
    for given, of, command in (
        (settings, of_django, ["django", "firmq_outbox"]),
        (with_database, handlers({}), ["firmq", "outbox"]),
    ):
        relay = main.parts_of(given, of)[-1]
        assert [*main._service(relay, given, {}, of).argv][-2:] == command
