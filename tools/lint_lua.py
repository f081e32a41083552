"""Runs luacheck over every Lua script, linked as Redis runs it; `make check` calls it.

A script by itself cannot be checked: it uses what the linker puts in front. A finding names the script and shows the
line, because linked scripts have no comments. Without luacheck the check is skipped, except in CI.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from shutil import which

from firmq.shared.redis.keys import with_prefix
from firmq.shared.redis.linker import CONFIRMING, scripts, source, with_quarantine

CONFIG = Path(__file__).resolve().parent.parent / ".luacheckrc"
_FINDING = re.compile(r"(\w+)\.lua:(\d+):\d+: (.*)")


def forms() -> dict[str, str]:
    """Returns the text of every script by its name, and of one in each of the other forms that the linker makes."""
    keys = with_prefix("")
    found = {name: source(name, keys) for name in scripts() if name != "quarantine"}
    found |= {f"{name}_with_quarantine": with_quarantine(name, keys) for name in ("quarantine", "submit")}
    return found | {"cancel_confirming": source("cancel" + CONFIRMING, keys)}


def findings(texts: Mapping[str, str]) -> list[str]:
    """Returns what luacheck finds in these Lua texts, each with the line that it is about."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in texts.items():
            Path(folder, f"{name}.lua").write_text(text)
        command = ["luacheck", "--config", str(CONFIG), "--formatter", "plain", "--codes", folder]
        output = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False).stdout
    return [
        f"{name}, line {line}: {what}\n  {texts[name].splitlines()[int(line) - 1].strip()}"
        for name, line, what in _FINDING.findall(output)
    ]


def main() -> int:
    """Returns 1 when there are findings, which it prints."""
    if which("luacheck") is None:
        print("luacheck is not installed, so the Lua scripts are not checked: apt-get install lua-check")
        return 1 if os.environ.get("CI") else 0
    found = findings(forms())
    print("\n".join(found) or f"{len(scripts())} Lua scripts: no findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
