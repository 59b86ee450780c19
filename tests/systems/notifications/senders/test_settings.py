from __future__ import annotations

from typing import Any

import pytest

from headway.core.errors import InvalidValue
from headway.systems.directory.database import Directory
from headway.systems.notifications import make_senders
from headway.systems.notifications.mail import Smtp
from headway.systems.notifications.notification import Channel
from headway.systems.notifications.push import Apns
from headway.systems.notifications.senders import Sms
from headway.systems.notifications.sendgrid_mail import SendGridMail
from headway.systems.parts import Parts
from headway.systems.telephony.providers import Telephony
from tests.systems.notifications.senders.messages import read_senders
from tests.systems.notifications.senders.test_push import KEYS, pem
from tests.systems.telephony.accounts import twilio

SMTP: dict[str, Any] = {"host": "mail.example.org", "username": "shop", "password": "hunter2!"}
EMAIL: dict[str, Any] = {"from": "Shop <news@example.org>", "smtp": SMTP}
PUSH: dict[str, Any] = {"key": "hunter2!", **KEYS}
WEBHOOK = {"keys": ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]}


def parts() -> Parts:
    account = twilio("http://127.0.0.1:1")
    return Parts(
        directory=Directory("sqlite:///:memory:"), telephony=Telephony({}, {"twilio": account})
    )


async def test_each_configured_channel_has_a_sender():
    read = read_senders(
        {
            "push": {**PUSH, "key": pem()},
            "sms": {"from": "+14155550199"},
            "email": EMAIL,
            "webhook": WEBHOOK,
            "apprise": {},
        }
    )
    made = make_senders(read, parts())
    assert list(made) == ["push", "sms", "email", "webhook", "apprise"]
    assert isinstance(made[Channel.PUSH], Apns)
    assert isinstance(made[Channel.SMS], Sms)
    assert isinstance(made[Channel.EMAIL], Smtp)
    assert "hunter2" not in repr(made)
    for one in made.values():
        await one.close()
    assert make_senders(read_senders({}), parts()) == {}


async def test_e_mail_uses_sendgrid_if_configured():
    sendgrid = {"from": "news@example.org", "sendgrid": {"api_key": "SG.hunter2"}}
    made = make_senders(read_senders({"email": sendgrid}), parts())
    assert isinstance(made[Channel.EMAIL], SendGridMail)
    await made[Channel.EMAIL].close()


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"pusch": {}}, "notifications.senders.pusch: there is no such setting .did you mean push"),
        (
            {"email": {**EMAIL, "smtp": {**SMTP, "hots": "x"}}},
            "notifications.senders.email.smtp.hots: there is no such setting .did you mean host",
        ),
        (
            {"email": {"smtp": SMTP}},
            r"notifications\.senders\.email\.from: it is missing .known: from, smtp, sendgrid",
        ),
        (
            {"email": {"from": "x@example.org"}},
            "email: set either a table smtp or a table sendgrid",
        ),
        ({"email": {**EMAIL, "from": "nobody"}}, "email.from: is not an address"),
        ({"email": {**EMAIL, "from": "a@x.org\nBcc: b@x.org"}}, "email.from: is not an address"),
        (
            {"email": {**EMAIL, "smtp": {**SMTP, "password": None}}},
            "smtp: set username and password together",
        ),
        ({"email": {**EMAIL, "smtp": {**SMTP, "tls": "none"}}}, "in the clear"),
        ({"email": {**EMAIL, "smtp": {**SMTP, "tls": "ssl"}}}, "smtp.tls: it should be 'starttls'"),
        (
            {"email": {**EMAIL, "smtp": {**SMTP, "ca_file": "/nowhere"}}},
            "smtp.ca_file: /nowhere cannot be read",
        ),
        ({"push": {**PUSH, "key_file": "x"}}, "push: set key_file, or key"),
        ({"push": {**PUSH, "key_id": "hunter2!"}}, "push.key_id: it should be text that matches"),
        ({"push": PUSH}, "notifications.senders.push is not a private key of P-256"),
        ({"sms": {"from": "hello"}}, "sms.from"),
        (
            {"sms": {"from": "+14155550199", "provider": "vonage"}},
            "senders.sms: no provider of text messages is named 'vonage'",
        ),
        ({"webhook": {"keys": []}}, "webhook.keys"),
        ({"webhook": {"keys": ["hunter2!"]}}, "webhook.keys: key 1 is not a secret"),
        ({"apprise": {"timeout": "1ms"}}, "apprise.timeout: it should be at least 100ms"),
    ],
)
async def test_wrong_setting_is_named_and_no_secret_is_shown(settings: dict[str, Any], fault: str):
    with pytest.raises(InvalidValue, match=fault) as raised:
        make_senders(read_senders(settings), parts())
    assert "hunter2" not in f"{raised.value} {raised.value.hint}"


def test_no_secret_is_in_a_repr():
    read = read_senders({"email": EMAIL, "push": PUSH, "webhook": WEBHOOK})
    for secret in ("hunter2", "whsec"):
        assert secret not in repr(read)
