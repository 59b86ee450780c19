"""Packages that only one peer wants: installed into a cache when it is first measured.

They lie beside the environment, not in it: what Headway is tested with stays what it is.
"""

from __future__ import annotations

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

REQUIREMENTS = Path(__file__).parents[1] / "requirements"
LIMIT_S = 300


class NoOverlay(Exception):
    """The packages cannot be had here; says why."""


def cache() -> Path:
    """Where they lie: `headway-bench` in the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "headway-bench"


def put_on_path(peer: str) -> None:
    """Lets this process, and those that it starts, import what a peer wants besides.

    Args:
        peer: whose requirements, if it has any.

    Raises:
        NoOverlay: they cannot be installed.
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
    try:
        done = subprocess.run(command, check=False, capture_output=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired as error:
        message = f"its packages could not be installed in {LIMIT_S} s"
        raise NoOverlay(message) from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        message = f"its packages cannot be installed: {said[-1] if said else 'pip failed'}"
        raise NoOverlay(message)
    (folder / "whole").touch()
