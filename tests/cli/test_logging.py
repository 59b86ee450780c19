from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from headway.cli.logging import configure_logging, hide_secrets
from headway.cli.settings import Settings


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    root = logging.getLogger()
    kept = root.handlers, root.level
    yield
    root.handlers, root.level = kept
    structlog.reset_defaults()


def test_logs_are_json_lines_without_a_terminal(capfd: pytest.CaptureFixture[str]):
    configure_logging(Settings())
    structlog.stdlib.get_logger("a").info("started", lane="calls")
    logging.getLogger("b").warning("from %s", "elsewhere")
    first, second = (json.loads(line) for line in capfd.readouterr().err.splitlines())
    assert (first["event"], first["lane"], first["level"]) == ("started", "calls", "info")
    assert (second["event"], second["logger"], second["level"]) == (
        "from elsewhere",
        "b",
        "warning",
    )
    every = ["timestamp", "level", "logger", "event"]
    assert (list(first), list(second)) == ([*every, "lane"], every)


def test_messages_below_the_level_are_not_logged(capfd: pytest.CaptureFixture[str]):
    configure_logging(Settings(log_level="warning"))
    structlog.stdlib.get_logger("a").info("started")
    logging.getLogger("b").info("started")
    assert capfd.readouterr().err == ""


def test_drivers_ignored_errors_are_not_logged(capfd: pytest.CaptureFixture[str]):
    configure_logging(Settings())
    logging.getLogger("psycopg").warning("error ignored terminating %s: %s", "a", "b")
    assert capfd.readouterr().err == ""
    logging.getLogger("psycopg").error("unexpected")
    assert "unexpected" in capfd.readouterr().err


def test_human_logs_contain_no_control_characters_of_their_values(
    capfd: pytest.CaptureFixture[str],
):
    configure_logging(Settings(log_format="human"))
    structlog.stdlib.get_logger("a").info("started", lane="\x1b[2J")
    assert "\x1b[2J" not in capfd.readouterr().err


def test_secrets_are_never_logged(capfd: pytest.CaptureFixture[str]):
    configure_logging(Settings())
    logger = structlog.stdlib.get_logger("a")
    logger.info(
        "opened",
        url="postgresql://me:hunter2@db/x",
        auth={"API_KEY": "hunter2"},
        passwd="hunter2",  # noqa: S106  (snapshots like one on purpose)
    )
    logging.getLogger("b").info("redis://:hunter2@host")
    err = capfd.readouterr().err
    assert "hunter2" not in err
    assert "postgresql://[hidden]@db/x" in err


def test_values_that_are_not_secrets_are_left():
    event = {"event": "mail to a@b.c", "count": 3, "list": ["x", {"k": "v"}]}
    assert hide_secrets(None, "info", dict(event)) == event


CANARY = "canary7secret7canary7secret7canary7secret77"
TOKEN = f"hw_0123456789abcdef_{CANARY}"


class Carrier:
    def __repr__(self) -> str:
        return f"Carrier(token={CANARY!r})"


@pytest.mark.parametrize(
    "text",
    [
        f"called with {TOKEN}",
        f"Authorization: Bearer {CANARY}",
        f"headers {{'authorization': 'Bearer {TOKEN}'}}",
        f"authorization: Basic {CANARY}",
        f"POST /v1/signals/k?expires=1&signature={CANARY} 200",
        f"https://hooks/x?token={CANARY}&a=b",
        f'{{"password": "{CANARY}"}}',
        f"Carrier(api_key='{CANARY}')",
        f"json://me:{CANARY}@host/path",
        f"cookie={CANARY}; path=/",
    ],
)
def test_secret_within_a_text_is_never_logged(text: str, capfd: pytest.CaptureFixture[str]):
    configure_logging(Settings())
    structlog.stdlib.get_logger("a").info(text, other=[text], nested={"deep": (text,)})
    logging.getLogger("b").warning("%s", text)
    logging.getLogger("c").warning("%s", Carrier())
    structlog.stdlib.get_logger("d").info("x", value=Carrier(), raw=text.encode())
    try:
        int(text)
    except ValueError:
        logging.getLogger("e").exception("failed")
    err = capfd.readouterr().err
    assert len(err.splitlines()) == 5
    assert CANARY not in err


def test_id_of_a_token_stays_in_the_log(capfd: pytest.CaptureFixture[str]):
    configure_logging(Settings())
    logging.getLogger("b").warning("refused %s", TOKEN)
    assert "hw_0123456789abcdef_[hidden]" in capfd.readouterr().err


def test_words_that_only_mention_secrets_are_left():
    event = {"event": "no token: create one with headway token create; basic settings hold"}
    assert hide_secrets(None, "info", dict(event)) == event


def test_fields_of_a_message_are_fields_of_the_line(capfd: pytest.CaptureFixture[str]):
    configure_logging(Settings(log_format="json"))
    said = {"kind": "mail", "attempt": 3, "error": "ValueError: 'a'\x1b"}
    message = "job failed kind=%(kind)s attempt=%(attempt)d error=%(error)r"
    logging.getLogger("headway.worker").warning(message, said)
    logging.getLogger("other").warning("no fields: %s", "a=%(b)s")
    first, second = (json.loads(line) for line in capfd.readouterr().err.splitlines())
    assert {name: first[name] for name in said} == said
    assert (first["event"], first["level"]) == ("job failed", "warning")
    assert second["event"] == "no fields: a=%(b)s"
    assert "positional_args" not in second
