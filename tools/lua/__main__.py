"""Regenerates the Lua of the rules; with `--check` it only says which files would change.

A file in `rules` says in its first line from which module it is written. To translate another
module, begin its file with such a line.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tools.lua.names import Names, table_of
from tools.lua.translate import WRITTEN, Translator

LUA = Path(__file__).parents[2] / "src/headway/stores/redis/lua"
_FIRST = re.compile(re.escape(WRITTEN).replace("MODULE", r"(\S+)"))


def written() -> dict[Path, str]:
    """The text of each file that is written: what other Lua uses of it, and what that uses."""
    paths = {
        ".".join(path.relative_to(LUA).with_suffix("").parts): path
        for path in sorted(LUA.rglob("*.lua"))
    }
    texts = {file: path.read_text(encoding="utf-8") for file, path in paths.items()}
    rules = {found[1]: file for file, text in texts.items() if (found := _FIRST.match(text))}
    texts = {file: text for file, text in texts.items() if file not in rules.values()}
    names, old = Names(rules, texts), dict[str, str]()
    # Until no rule uses anything of another that is not written yet.
    while texts != old:
        old = dict(texts)
        for module, file in rules.items():
            others = "\n".join(text for one, text in old.items() if one != file)
            used = set(re.findall(rf"\b{table_of(file)}\.(\w+)", others))
            texts[file] = Translator(names, module, used).text()
    return {paths[file]: texts[file] for file in rules.values()}


def main() -> int:
    found = written().items()
    changed = {path: text for path, text in found if path.read_text(encoding="utf-8") != text}
    for path, text in changed.items():
        print(path.relative_to(LUA))
        if "--check" not in sys.argv:
            path.write_text(text, encoding="utf-8")
    return len(changed) if "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
