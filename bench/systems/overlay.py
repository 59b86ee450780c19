"""Packages that only one peer needs, installed into a cache when it is first measured.

They are kept outside the environment, so that Headway's own dependencies stay unchanged.
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
    """A peer, or something it needs, cannot be installed on this machine."""


def install(
    what: str,
    command: Sequence[str],
    seconds: float,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run an installer or a compiler.

    Args:
        what: What is installed, for the message.
        seconds: Time limit.

    Raises:
        Unavailable: it failed, or took too long.
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
        # npm prints the reason first, pip and go print it last.
        reason = " … ".join(dict.fromkeys([lines[0], lines[-1]])) if lines else "no reason given"
        message = f"{what} cannot be installed: {reason}"
        raise Unavailable(message)


def cache() -> Path:
    """Return the folder of the packages: `headway-bench` in the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "headway-bench"


def put_on_path(peer: str) -> None:
    """Add a peer's additional packages, if it has any, to the path of this process and children.

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
