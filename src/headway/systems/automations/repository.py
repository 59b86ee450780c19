"""Repositories: one key for all the URLs that git accepts for one repository.

The key appears in the lock, the log and the page, so it has no user, password, token, port or
query. Two URLs that may lead to one repository have one key: ports, the case of a path on a
server, and `.git` do not count. If a server distinguishes such paths, their sessions wait for
each other needlessly; the other mistake would let two sessions into one repository.

Source: git-clone(1), "GIT URLS"; `url_is_local_not_ssh` in git's connect.c.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from typing import NoReturn
from urllib.parse import unquote, urlsplit

from headway.core.errors import InvalidValue

SCHEMES = frozenset({"ssh", "git", "http", "https", "ftp", "ftps", "git+ssh", "ssh+git"})
LONGEST_KEY = 400
"""Maximum characters of a key; a longer one is cut to this and a hash."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_SCP = re.compile(
    r"(?:(?P<user>[^:\[]*)@)?(?P<host>\[[^\]]*\](?::\d*)?|[^:@\[\]]+):(?P<path>.*)", re.DOTALL
)
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_HINT = "such as https://github.com/user/repo, git@host:user/repo or a path"


@dataclass(frozen=True, kw_only=True, slots=True)
class Repository:
    """A repository.

    Attributes:
        key: `host/path` in lower case without `.git`, or the absolute path of a local one.
        url: URL for git; may contain a token, and is never logged.
        secrets: texts in the URL that must not be shown, the longest first.
    """

    key: str
    url: str
    secrets: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return only the key, because the URL may contain a token."""
        return f"<Repository {self.key!r}>"


def read_repository(url: str, *, folder: Path) -> Repository:
    """Normalise the URL of a repository.

    Args:
        url: in any form that `git clone` accepts, except remote helpers (`ext::…`).
        folder: start of a relative path.

    Raises:
        InvalidValue: git would not accept it, or would run a command for it; the message does
            not repeat the URL.
    """
    text = url.strip()
    if not text or text.startswith("-") or "::" in text.partition("/")[0].partition("[")[0]:
        _refuse("is not a URL or path of a repository")
    scheme = _SCHEME.match(text)
    if scheme is None:
        match = None if _is_path(text) else _SCP.fullmatch(text)
        if match is None:
            return _local(text, folder)
        inside, host = _scp_host(match["host"])
        user = "@".join(filter(None, (match["user"], inside)))
        return _remote(text, user, host, match["path"])
    name = scheme[1].lower()
    if name == "file":
        # Git ignores the host of a file URL.
        path = "/" + text[scheme.end() :].partition("/")[2]
        return _local(unquote(path), folder)
    if name not in SCHEMES:
        _refuse("has a scheme that is not supported")
    try:
        parts = urlsplit(f"{name}{text[scheme.end() - 3 :]}")
        host = parts.hostname
    except ValueError:
        _refuse("is not a valid URL")
    if not host:
        _refuse("names no host")
    user = parts.netloc.rpartition("@")[0]
    return _remote(text, user, unquote(host), unquote(parts.path), parts.query, parts.fragment)


def _is_path(text: str) -> bool:
    colon, slash = text.find(":"), text.find("/")
    return colon < 0 or (0 <= slash < colon)


def _scp_host(text: str) -> tuple[str, str]:
    """Return the user within the brackets, which may be empty, and the host."""
    if not text.startswith("["):
        return "", text
    user, _, inner = text[1 : text.index("]")].rpartition("@")
    # `[::1]` is an address, `[host:22]` a host and its port.
    with suppress(ValueError):
        return user, str(ip_address(inner))
    return user, inner.partition(":")[0]


def _local(path: str, folder: Path) -> Repository:
    if _UNPRINTABLE.search(path):
        _refuse("has control characters")
    try:
        place = folder / Path(path).expanduser()
        found = place.resolve()
    except (OSError, RuntimeError, ValueError):
        _refuse("is a path that cannot be resolved")
    parts = list(found.parts)
    while len(parts) > 2 and parts[-1] == ".git":
        parts.pop()
    if parts[-1].endswith(".git") and parts[-1] != ".git":
        parts[-1] = _without_git(parts[-1])
    # Git follows links when a session starts: the repository may have moved by then.
    return Repository(key=_bounded(str(Path(*parts))), url=str(place))


def _remote(
    url: str, user: str | None, host: str, path: str, query: str = "", fragment: str = ""
) -> Repository:
    place = _steps(path)
    name = _host(host)
    if not place or not name or _UNPRINTABLE.search(name + place):
        _refuse("names no repository on its host" if name else "names no host")
    return Repository(
        key=_bounded(f"{name}/{place}"), url=url, secrets=_secrets(user or "", query, fragment)
    )


def _host(host: str) -> str:
    name = host.lower().strip("[]").rstrip(".")
    with suppress(ValueError):
        address = ip_address(name)
        return f"[{address}]" if address.version == 6 else str(address)
    with suppress(UnicodeError):
        return name.encode("idna").decode()
    return name


def _steps(path: str) -> str:
    """Return the path in lower case, without empty segments, dots, a leading `~`, and `.git`."""
    steps: list[str] = []
    for step in path.lower().split("/"):
        if step == "..":
            del steps[-1:]
        elif step not in {"", "."}:
            steps.append(step)
    if steps and steps[0] == "~":
        del steps[0]
    while steps and steps[-1] == ".git":
        steps.pop()
    if steps:
        steps[-1] = _without_git(steps[-1])
    return "/".join(steps)


def _without_git(name: str) -> str:
    while name.endswith(".git") and name != ".git":
        name = name.removesuffix(".git")
    return name


def _secrets(user: str, query: str, fragment: str) -> tuple[str, ...]:
    login, colon, password = user.partition(":")
    found = {f"{user}@"} if user else set[str]()
    for text in (password, query, fragment, *([] if colon else [login])):
        # A short login such as `git` is not a secret, and would mask every word that contains it.
        if len(text) >= 8 or (text and text == password):
            found |= {text, unquote(text)}
    return tuple(sorted(found, key=len, reverse=True))


def _bounded(key: str) -> str:
    if len(key) <= LONGEST_KEY:
        return key
    return f"{key[:LONGEST_KEY]}~{sha256(key.encode()).hexdigest()[:16]}"


def _refuse(why: str) -> NoReturn:
    message = f"the repository {why}"
    raise InvalidValue(message, hint=_HINT)
