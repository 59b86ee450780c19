"""Settings from HEADWAY_* variables, headway.toml and defaults, in this order of precedence."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, get_origin
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
from headway.core.local_time import find_zone
from headway.core.naming import did_you_mean
from headway.runtime.faults import faults
from headway.runtime.signals import read_signing_keys

PREFIX = "HEADWAY_"
FILE = "headway.toml"
FILE_VARIABLE = "HEADWAY_CONFIG"
_NO_SETTINGS = ("CONFIG", "DEBUG", "TOKEN", "URL", "SESSION_ID", "AUTOMATION_ID", "REPOSITORY")
"""Variables that are read or set elsewhere."""


def _table(about: str, *, shown: bool = False) -> Any:  # noqa: ANN401  (as `Field`)
    """Return a table validated by its own reader; errors show its values only if `shown`."""
    return Field(default_factory=dict, repr=shown, description=about)


class Settings(BaseSettings):
    """Settings of the command; an option overrides its setting."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_ignore_empty=True,
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
    )

    store: str = Field(default="sqlite:///headway.db", description="URL of the store")
    store_wait: str = Field(
        default="1m",
        description="how long a starting worker or server waits for an unreachable store",
    )
    app: str | None = Field(default=None, description="your App: a file, or module[:name]")
    author: str | None = Field(
        default=None, description="author recorded in the trail; your login name if unset"
    )
    zone: str | None = Field(
        default=None, description="IANA time zone for displayed times; the system's zone if unset"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="minimum log level"
    )
    log_format: Literal["auto", "human", "json"] = Field(
        default="auto", description="`auto` is human on a terminal and JSON lines elsewhere"
    )
    log_file: Path | None = Field(
        default=None, description="file to also write the log to, as JSON lines"
    )
    log_file_size: int = Field(
        default=10_000_000, ge=1_000, description="size in bytes at which the log file is rotated"
    )
    log_file_keep: int = Field(
        default=5, ge=1, le=1_000, description="number of rotated log files to keep"
    )
    traces: bool = Field(
        default=False, description="send traces, configured by the standard OTEL_* variables"
    )
    public_url: str | None = Field(default=None, description="public URL of the server")
    signing_key: SecretStr | None = Field(
        default=None,
        description="key that signs signal URLs; of several, separated by commas, the first signs",
    )
    requests_per_s: float | None = Field(
        default=None, gt=0, description="request rate limit per token; unlimited if unset"
    )
    hooks: dict[str, Any] = _table("webhook keys, by provider")
    lanes: dict[str, Any] = _table("lane settings, for the system `lanes`", shown=True)
    alerts: dict[str, Any] = _table("alert destinations and thresholds", shown=True)
    keep_trail: str = Field(default="90d", description="how long trail lines are kept")
    directory: str | None = Field(
        default=None,
        description="database URL for the systems' records; next to the store if unset",
    )
    telephony: dict[str, Any] = _table("providers that place calls and send texts")
    calls: dict[str, Any] = _table("settings of the system `calls`")
    field_service: dict[str, Any] = _table("settings of the system `field_service`")
    notifications: dict[str, Any] = _table("settings of the system `notifications`")
    automations: dict[str, Any] = _table("settings of the system `automations`", shown=True)
    kafka: dict[str, Any] = _table("Kafka brokers, and the topics `headway bridge` reads")
    cassandra: dict[str, Any] = _table("Cassandra cluster that stores jobs due far in the future")

    @field_validator("store_wait", "keep_trail")
    @classmethod
    def _is_a_duration(cls, text: str) -> str:
        parse_duration(text)
        return text

    @field_validator("zone")
    @classmethod
    def _is_a_zone(cls, zone: str | None) -> str | None:
        # Before a command acts: it would fail only when it shows what it has done.
        if zone is not None:
            find_zone(zone)
        return zone

    @field_validator("public_url")
    @classmethod
    def _leads_somewhere(cls, url: str | None) -> str | None:
        # Providers could not call it, and the first webhook would be lost.
        if url is None:
            return None
        found = urlsplit(url)
        if found.scheme not in {"http", "https"} or not found.netloc or found.query:
            message = "is not a URL that starts with https:// or http://"
            raise ValueError(message)
        return url

    @property
    def signing_keys(self) -> tuple[str, ...]:
        """The keys of signal URLs; the first one signs."""
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
        """Read variables first, then the file, and nothing else."""
        del settings_cls, dotenv_settings, file_secret_settings
        return env_settings, init_settings


def load_settings() -> Settings:
    """Read the settings.

    The file is headway.toml in the working directory, or the one named by HEADWAY_CONFIG.

    Raises:
        InvalidValue: the file named by HEADWAY_CONFIG is missing; the file is not valid TOML, or
            has an unknown key or an invalid value; or a variable has an invalid value. The message
            names the file or the variable, and the key.
    """
    path, found = _read_file()
    try:
        return Settings(**found)
    except ValidationError as error:
        refused = _explained(error, path, found)
        raise refused from None
    except SettingsError as error:
        # A variable for a whole table; the library's message has the field's name in quotes.
        name = str(error).partition('"')[2].partition('"')[0]
        message = f"{PREFIX}{name.upper()}: it is not JSON: {error.__cause__}"
        hint = f'as {{"key": "value"}}, or {PREFIX}{name.upper()}__KEY for one key'
        raise InvalidValue(message, hint=hint) from None


def misspelt_variables() -> list[str]:
    """Return a note for each variable that no setting has, and that is spelt like a setting's."""
    known = [*map(str.upper, Settings.model_fields), *_NO_SETTINGS]
    notes: list[str] = []
    for variable in sorted(os.environ):
        name = variable.removeprefix(PREFIX)
        if name == variable or name.partition("__")[0] in known:
            continue
        # Others belong to something else, such as those that Kubernetes sets for its services.
        if near := get_close_matches(name, known, n=1):
            meant = f"did you mean {PREFIX}{near[0]}?"
            notes.append(f"note: the variable {variable} is not read ({meant})")
    return notes


def _read_file() -> tuple[Path, dict[str, Any]]:
    named = os.environ.get(FILE_VARIABLE)
    path = Path(named or FILE)
    try:
        return path, tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        if not named:
            return path, {}
        message = f"the settings file {named} does not exist"
        raise InvalidValue(message, hint=f"create it, or unset {FILE_VARIABLE}") from None
    except OSError as error:
        message = f"the settings file {path} cannot be read: {error.strerror}"
        raise InvalidValue(message, hint="check its permissions") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        message = f"the settings file {path} is not valid TOML: {error}"
        raise InvalidValue(message, hint='use lines such as store = "sqlite:///x.db"') from None


def _explained(error: ValidationError, path: Path, written: Mapping[str, object]) -> InvalidValue:
    """Return an error for the first fault; it shows the value of a variable only for a choice."""
    errors = error.errors(include_url=False)
    key = str(errors[0]["loc"][0])
    known = Settings.model_fields
    if errors[0]["type"] == "extra_forbidden":
        hint = did_you_mean(key, known, f"known: {', '.join(known)}")
        return InvalidValue(f"{path}: there is no setting {key!r}", hint=hint)
    variable = PREFIX + key.upper()
    by_variable = bool(os.environ.get(variable))
    # The value of any other variable may be a secret.
    is_choice = get_origin(known[key].annotation) is Literal
    shown = known[key].repr and (is_choice or not by_variable)
    first = faults(errors, written, shows=lambda _: shown, toml=True)[0]
    where = variable if by_variable else f"{path}: {first.where}"
    return InvalidValue(f"{where}: {first.what}", hint=first.hint or known[key].description or "")
