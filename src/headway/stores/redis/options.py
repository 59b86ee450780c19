"""Options of a Redis or Valkey store, and the URL that contains them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

from headway.core.errors import InvalidValue
from headway.core.naming import check_host, read_whole

DEFAULT_NAMESPACE = "main"
DEFAULT_PORT = 6379
DEFAULT_SENTINEL_PORT = 26379
DEFAULT_PATIENCE = 2_000
DEFAULT_TIMEOUT = 10_000

SCHEMES = (
    "redis",
    "rediss",
    "unix",
    "redis+sentinel",
    "rediss+sentinel",
    "redis+cluster",
    "rediss+cluster",
)
_HINT = (
    "redis://host:6379/0?namespace=main, rediss:// with TLS, unix:///path/redis.sock, "
    "redis+sentinel://host:26379,host:26379/service, redis+cluster://host:6379,host:6379"
)
_NAMESPACE = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_KNOWN = frozenset(
    {
        "namespace",
        "patience_ms",
        "timeout_ms",
        "db",
        "tls_ca",
        "tls_cert",
        "tls_key",
        "sentinel_username",
        "sentinel_password",
    }
)


class Address(NamedTuple):
    """Where a server listens: the `path` of a UNIX socket, or host and port."""

    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        """Return the address for messages."""
        if self.path:
            return self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Login:
    """A login; the password is never shown."""

    username: str = ""
    password: str = field(default="", repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Tls:
    """How the server's certificate is verified; it always is.

    Attributes:
        ca: file of the trusted authorities; empty for the machine's.
        cert: file of the client's certificate.
        key: file of its key.
    """

    ca: str = ""
    cert: str = ""
    key: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class RedisOptions:
    """How a store is reached.

    Attributes:
        addresses: the server, all sentinels, or some nodes of a cluster.
        service: name under which sentinels know the master; empty without sentinels.
        cluster: whether the addresses are those of a cluster.
        namespace: separates several stores on one server.
        tls: None for an unencrypted connection.
        patience_ms: how long to retry while the server is unreachable, loading or failing over.
        timeout_ms: how long to wait for a reply.
    """

    addresses: tuple[Address, ...]
    service: str = ""
    cluster: bool = False
    database: int = 0
    namespace: str = DEFAULT_NAMESPACE
    account: Login = Login()
    sentinel_account: Login = Login()
    tls: Tls | None = None
    patience_ms: int = DEFAULT_PATIENCE
    timeout_ms: int = DEFAULT_TIMEOUT

    def __str__(self) -> str:
        """Return the store's location for messages, without secrets."""
        where = ",".join(map(str, self.addresses))
        if self.service:
            where = f"{self.service} of the sentinels {where}"
        return f"{where} (namespace {self.namespace})"


def parse_url(url: str) -> RedisOptions:
    """Parse the URL of a Redis store.

    Args:
        url: such as `redis://:secret@localhost:6379/0?namespace=main`.

    Raises:
        InvalidValue: the URL is not valid. It is not repeated, because it may contain a password.
    """
    scheme, _, rest = url.partition("://")
    if scheme not in SCHEMES:
        message = f"{scheme!r} is not the scheme of a Redis store"
        raise InvalidValue(message, hint=_HINT)
    place, _, query = rest.partition("?")
    given = _given(query)
    login, _, place = place.rpartition("@")
    username, _, password = login.partition(":")
    tls = _tls(given) if scheme.startswith("rediss") else None
    if scheme == "unix":
        addresses, parts = (_socket(place),), [given.get("db", "")]
    else:
        hosts, *parts = place.split("/")
        port = DEFAULT_SENTINEL_PORT if scheme.endswith("sentinel") else DEFAULT_PORT
        addresses = tuple(_address(one, port) for one in hosts.split(","))
    service = _service(parts) if scheme.endswith("sentinel") else ""
    if service:
        parts = parts[1:]
    if len(addresses) > 1 and "+" not in scheme:
        message = "the URL of the Redis store names several servers"
        raise InvalidValue(message, hint="redis+sentinel:// or redis+cluster:// take several")
    return RedisOptions(
        addresses=addresses,
        service=service,
        cluster=scheme.endswith("cluster"),
        database=_database(scheme, parts, given),
        namespace=_namespace(given.get("namespace", DEFAULT_NAMESPACE)),
        account=Login(username=unquote(username), password=unquote(password)),
        sentinel_account=Login(
            username=given.get("sentinel_username", ""),
            password=given.get("sentinel_password", ""),
        ),
        tls=tls,
        patience_ms=read_whole("patience_ms", given.get("patience_ms", str(DEFAULT_PATIENCE))),
        timeout_ms=read_whole("timeout_ms", given.get("timeout_ms", str(DEFAULT_TIMEOUT)), least=1),
    )


def _given(query: str) -> Mapping[str, str]:
    given = dict(parse_qsl(query, keep_blank_values=True))
    unknown = set(given) - _KNOWN
    if unknown:
        message = f"the URL of the Redis store has the unknown option {min(unknown)!r}"
        raise InvalidValue(message, hint=", ".join(sorted(_KNOWN)))
    return given


def _tls(given: Mapping[str, str]) -> Tls:
    tls = Tls(
        ca=given.get("tls_ca", ""), cert=given.get("tls_cert", ""), key=given.get("tls_key", "")
    )
    if tls.key and not tls.cert:
        message = "the URL of the Redis store names a tls_key without its tls_cert"
        raise InvalidValue(message, hint="pass both, or neither")
    return tls


def _socket(place: str) -> Address:
    path = unquote(place)
    if not path.startswith("/") or "\0" in path:
        message = f"{path!r} is not the path of a socket"
        raise InvalidValue(message, hint="an absolute path, as unix:///run/redis/redis.sock")
    return Address(path=path)


def _address(text: str, default: int) -> Address:
    host, port = text, ""
    if text.startswith("["):
        host, bracket, port = text[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            message = f"{text!r} is not the address of a server"
            raise InvalidValue(message, hint="an IPv6 address as [::1]:6379")
        port = port[1:]
    elif text.count(":") <= 1:
        host, _, port = text.partition(":")
    if port and not 1 <= read_whole("a port", port) <= 65535:
        message = f"{port} is not a valid port"
        raise InvalidValue(message, hint="from 1 to 65535")
    return Address(host=check_host(host) or "localhost", port=int(port) if port else default)


def _service(parts: list[str]) -> str:
    service = unquote(parts[0]) if parts else ""
    if not service:
        message = "the URL of the Redis store names sentinels, but no service"
        raise InvalidValue(message, hint="redis+sentinel://host:26379,host:26379/service")
    return service


def _database(scheme: str, parts: list[str], given: Mapping[str, str]) -> int:
    text = (parts[0] if parts else "") or given.get("db", "")
    if len(parts) > 1:
        message = f"the URL of the Redis store has too many parts: {'/'.join(parts)!r}"
        raise InvalidValue(message, hint=_HINT)
    number = read_whole("the number of the database", text) if text else 0
    if number and scheme.endswith("cluster"):
        message = f"a cluster has no database {number}"
        raise InvalidValue(message, hint="leave it out; choose a ?namespace= instead")
    return number


def _namespace(value: str) -> str:
    if _NAMESPACE.fullmatch(value) is None:
        message = f"the namespace {value!r} is unusable"
        raise InvalidValue(message, hint="1 to 64 of A-Z a-z 0-9 _ . : -")
    return value
