"""Packages that only one peer wants: installed into a cache when it is first measured.

They lie beside the environment, not in it: what Headway is tested with stays what it is.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

REQUIREMENTS = Path(__file__).parents[1] / "requirements"
LIMIT_S = 300


class Unavailable(Exception):
    """A peer, or something it needs, cannot be installed here; says why."""


def install(
    what: str,
    command: Sequence[str],
    seconds: float,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run an installer or a compiler.

    Args:
        what: is installed, for the message.

    Raises:
        Unavailable: it failed, or took longer than so many seconds.
    """
    try:
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            cwd=folder,
            timeout=seconds,
            env={**os.environ, **(environment or {})},
        )
    except subprocess.TimeoutExpired as error:
        message = f"{what} could not be installed in {seconds:.0f} s"
        raise Unavailable(message) from error
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        # npm puts the reason first, pip and go put it last.
        reason = " … ".join(dict.fromkeys([lines[0], lines[-1]])) if lines else "no reason given"
        message = f"{what} cannot be installed: {reason}"
        raise Unavailable(message)


def cache() -> Path:
    """Where they lie: `headway-bench` in the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "headway-bench"


def put_on_path(peer: str) -> None:
    """Lets this process, and those that it starts, import what a peer wants besides.

    Args:
        peer: whose requirements, if it has any.

    Raises:
        Unavailable: they cannot be installed.
    """
    wanted = REQUIREMENTS / f"{peer}.txt"
    if not wanted.exists():
        return
    key = sha256(wanted.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = cache() / f"{peer}-{key}"
    if not (folder / "whole").exists():
        _install(wanted, folder)
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _install(wanted: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--require-hashes", "--only-binary=:all:", "--upgrade"]
    command += ["--target", str(folder), "-r", str(wanted)]
    install("its packages", command, LIMIT_S)
    (folder / "whole").touch()
