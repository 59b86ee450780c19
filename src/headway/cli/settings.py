"""Settings: HEADWAY_* variables first, then headway.toml, then these defaults."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from headway.core.duration import parse_duration
from headway.core.errors import InvalidValue
from headway.core.naming import did_you_mean
from headway.runtime.faults import faults
from headway.runtime.signals import read_signing_keys

PREFIX = "HEADWAY_"
FILE = "headway.toml"
FILE_VARIABLE = "HEADWAY_CONFIG"


def _table(about: str, *, shown: bool = False) -> Any:  # noqa: ANN401  (as `Field`)
    """Return a table that its own reader validates; an error shows a value only if it may."""
    return Field(default_factory=dict, repr=shown, description=about)


class Settings(BaseSettings):
    """Settings of the command; each option overrides its setting."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_ignore_empty=True,
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
    )

    store: str = Field(default="sqlite:///headway.db", description="the store's URL")
    store_wait: str = Field(
        default="1m",
        description="how long a worker or server that starts tries to reach a store that is away",
    )
    app: str | None = Field(default=None, description="the App: a file or module[:name]")
    author: str | None = Field(
        default=None, description="who stands on the trail; else your login name"
    )
    zone: str | None = Field(
        default=None, description="the IANA zone that times are shown in; else the system's"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="the least that is logged"
    )
    log_format: Literal["auto", "human", "json"] = Field(
        default="auto", description="human on a terminal, else JSON lines"
    )
    log_file: Path | None = Field(
        default=None, description="a file that gets the log too, as JSON lines"
    )
    log_file_size: int = Field(
        default=10_000_000, ge=1_000, description="bytes after which a new log file begins"
    )
    log_file_keep: int = Field(
        default=5, ge=1, le=1_000, description="how many older log files are kept"
    )
    traces: bool = Field(
        default=False, description="sends traces as the standard OTEL_* variables say"
    )
    public_url: str | None = Field(
        default=None, description="the server's address as the outside world sees it"
    )
    signing_key: SecretStr | None = Field(
        default=None, description="signs signal URLs; several by commas, the first one signs"
    )
    requests_per_s: float | None = Field(
        default=None, gt=0, description="how often one token may ask; else any number"
    )
    hooks: dict[str, Any] = _table("keys of providers' webhooks, by provider")
    lanes: dict[str, Any] = _table("what lanes carry, for the system `lanes`", shown=True)
    alerts: dict[str, Any] = _table("who is alerted, and from which values on", shown=True)
    keep_trail: str = Field(default="90d", description="how long lines of the trail are kept")
    directory: str | None = Field(
        default=None, description="where systems keep their records; else beside the store"
    )
    telephony: dict[str, Any] = _table("who places calls and sends texts")
    calls: dict[str, Any] = _table("of the system `calls`")
    field_service: dict[str, Any] = _table("of the system `field_service`")
    notifications: dict[str, Any] = _table("of the system `notifications`")
    automations: dict[str, Any] = _table("of the system `automations`", shown=True)
    kafka: dict[str, Any] = _table("brokers, and what `headway bridge` reads")
    cassandra: dict[str, Any] = _table("where what is due far ahead lies")

    @field_validator("store_wait", "keep_trail")
    @classmethod
    def _is_a_duration(cls, text: str) -> str:
        parse_duration(text)
        return text

    @field_validator("public_url")
    @classmethod
    def _leads_somewhere(cls, url: str | None) -> str | None:
        """Refuse what no provider could call: it would be found out by the first call only.

        Raises:
            ValueError: it is not a URL of HTTP.
        """
        if url is None:
            return None
        found = urlsplit(url)
        if found.scheme not in {"http", "https"} or not found.netloc or found.query:
            message = "is not a URL that begins with https:// or http://"
            raise ValueError(message)
        return url

    @property
    def signing_keys(self) -> tuple[str, ...]:
        """The keys of signal URLs; the first one signs.

        Raises:
            InvalidValue: one is too short to be secure.
        """
        key = self.signing_key
        return read_signing_keys(None if key is None else key.get_secret_value())

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Variables win over what the file says; there is no other source."""
        del settings_cls, dotenv_settings, file_secret_settings
        return env_settings, init_settings


def load_settings() -> Settings:
    """Read the settings.

    The file is headway.toml in the working directory, or what HEADWAY_CONFIG names.

    Raises:
        InvalidValue: the file is missing (only if HEADWAY_CONFIG names it), is no TOML, or holds
            an unknown key or an unusable value; or a variable's value is unusable. The message
            names the file or the variable, and the key.
    """
    path, found = _read_file()
    try:
        return Settings(**found)
    except ValidationError as error:
        refused = _explained(error, path, found)
        raise refused from None
    except SettingsError as error:
        # A variable that holds a whole table; the library names its field within quotes.
        name = str(error).partition('"')[2].partition('"')[0]
        message = f"{PREFIX}{name.upper()}: it is not JSON: {error.__cause__}"
        hint = f'as {{"key": "value"}}, or {PREFIX}{name.upper()}__KEY for one key'
        raise InvalidValue(message, hint=hint) from None


def _read_file() -> tuple[Path, dict[str, Any]]:
    named = os.environ.get(FILE_VARIABLE)
    path = Path(named or FILE)
    try:
        return path, tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        if not named:
            return path, {}
        message = f"the settings file {named} does not exist"
        raise InvalidValue(message, hint=f"make it, or unset {FILE_VARIABLE}") from None
    except OSError as error:
        message = f"the settings file {path} cannot be read: {error.strerror}"
        raise InvalidValue(message, hint="check its permissions") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        message = f"the settings file {path} is no TOML: {error}"
        raise InvalidValue(message, hint='write lines such as store = "sqlite:///x.db"') from None


def _explained(error: ValidationError, path: Path, written: Mapping[str, object]) -> InvalidValue:
    """Return the error for the first thing that is wrong; a variable's value is never shown."""
    errors = error.errors(include_url=False)
    key = str(errors[0]["loc"][0])
    known = Settings.model_fields
    if errors[0]["type"] == "extra_forbidden":
        hint = did_you_mean(key, known, f"known: {', '.join(known)}")
        return InvalidValue(f"{path}: there is no setting {key!r}", hint=hint)
    variable = PREFIX + key.upper()
    by_variable = bool(os.environ.get(variable))
    shown = known[key].repr and not by_variable
    first = faults(errors, written, shows=lambda _: shown, toml=True)[0]
    where = variable if by_variable else f"{path}: {first.where}"
    return InvalidValue(f"{where}: {first.what}", hint=first.hint or known[key].description or "")
