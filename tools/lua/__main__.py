"""Regenerate the Lua of the rules; with `--check`, only list the files that would change.

A file in `rules` names its Python module in its first line, which is all that a new file needs.
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
    """Return the text of each generated file: functions that other Lua uses, and what they use."""
    files = sorted(LUA.rglob("*.lua"))
    paths = {".".join(one.relative_to(LUA).with_suffix("").parts): one for one in files}
    texts = {file: path.read_text(encoding="utf-8") for file, path in paths.items()}
    rules = {found[1]: file for file, text in texts.items() if (found := _FIRST.match(text))}
    texts = {file: text for file, text in texts.items() if file not in rules.values()}
    names, old = Names(rules, texts), dict[str, str]()
    # Repeat until no rule uses a function of another that is not generated yet.
    while texts != old:
        old = dict(texts)
        for module, file in rules.items():
            others = "\n".join(text for one, text in old.items() if one != file)
            used = set(re.findall(rf"\b{table_of(file)}\.(\w+)", others))
            texts[file] = Translator(names, module, used).text()
    return {paths[file]: texts[file] for file in rules.values()}


def main() -> int:
    changed = {path: text for path, text in written().items() if path.read_text("utf-8") != text}
    for path, text in changed.items():
        print(path.relative_to(LUA))
        if "--check" not in sys.argv:
            path.write_text(text, encoding="utf-8")
    return len(changed) if "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
