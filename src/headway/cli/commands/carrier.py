"""`headway carrier`: a telephone world on this machine that speaks Twilio's API."""

from __future__ import annotations

import asyncio
import re
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from headway.cli.command import command, new_command
from headway.cli.extras import needs_extra
from headway.cli.logging import configure_logging
from headway.cli.options import Port
from headway.cli.session import Session
from headway.core.errors import InvalidValue
from headway.runtime import event_loop

with needs_extra("systems"):
    from headway.carrier.twilio_requests import CarrierSettings
    from headway.carrier.twilio_server import HOSTS, Carrier
    from headway.runtime.settings_table import read_table
    from headway.server.listener import ListenAddress, Listener

app = new_command()

_Share = float | None


def _share(text: str) -> object:
    return typer.Option(min=0, max=1, metavar="SHARE", help=text, show_default=False)


def _span(text: str) -> object:
    return typer.Option(metavar="SPAN", help=text, show_default=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class WorldOptions:
    """What happens how often; the names are those of the settings."""

    seed: Annotated[int, typer.Option(help="The same seed gives the same day.")] = 1
    speed: Annotated[float, typer.Option(help="How many times faster than real time it goes.")] = (
        1.0
    )
    answer: Annotated[_Share, _share("Calls that are answered; else 14 of 19.")] = None
    busy: Annotated[_Share, _share("That find the line busy; else 2 of 19.")] = None
    no_answer: Annotated[_Share, _share("Calls that are not answered; else 2 of 19.")] = None
    failed: Annotated[_Share, _share("That cannot be put through; else 1 of 19.")] = None
    refused: Annotated[_Share, _share("Requests refused for the number's sake.")] = None
    unsure: Annotated[_Share, _share("Calls made whose reply never comes.")] = None
    accept: Annotated[_Share, _share("People who press or write 1; else 10 of 20.")] = None
    decline: Annotated[_Share, _share("Who press or write 2; else 6 of 20.")] = None
    hang_up: Annotated[_Share, _share("Who answer and hang up in the middle.")] = None
    post_lost: Annotated[_Share, _share("Webhooks that never arrive.")] = None
    post_late: Annotated[_Share, _share("Webhooks that are 5 s to 2 min late.")] = None
    post_twice: Annotated[_Share, _share("Webhooks that come twice.")] = None
    post_disordered: Annotated[_Share, _share("Webhooks that come after the next.")] = None
    ring: Annotated[str | None, _span('How long it rings: "5s", or "1s,20s".')] = None
    talk: Annotated[str | None, _span('How long a call lasts: "1m", or "20s,4m".')] = None
    think: Annotated[str | None, _span("How long people take to press or write.")] = None


@dataclass(frozen=True, kw_only=True, slots=True)
class AccountOptions:
    """The account, its numbers, and its webhooks."""

    account: Annotated[
        str | None, typer.Option(metavar="SID", help="AC and 32 digits; else made of the seed.")
    ] = None
    auth_token: Annotated[
        str | None, typer.Option(metavar="TOKEN", help="Of the account; else made of the seed.")
    ] = None
    number: Annotated[
        list[str] | None,
        typer.Option(metavar="PHONE", help="A number of the account; repeatable; else any."),
    ] = None
    sms_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Webhook for incoming messages.")
    ] = None


_OPTIONS = {"account_sid": "account", "numbers": "number", "inbound_url": "sms_url"}
"""The options of the settings that have another name."""
_SETTING = re.compile(r"^carrier\.(\w+)(?:\.\d+)?")


def _option(setting: re.Match[str]) -> str:
    return f"--{_OPTIONS.get(setting[1], setting[1]).replace('_', '-')}"


@command(app)
def carrier(
    session: Session,
    world: WorldOptions,
    account: AccountOptions,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="127.0.0.1 or localhost; nowhere else.")
    ] = "127.0.0.1",
    port: Port = 4010,
) -> None:
    """Simulate a telephone network until SIGTERM or Ctrl-C; calls and messages reach no real phone.

    It speaks Twilio's API and signs its webhooks as Twilio does, so that systems can be tried
    without an account. It prints the lines of headway.toml that use it.

    Raises:
        InvalidValue: the host is not this machine, or an option is unusable.
    """
    session.refuse_store("leave it out: a carrier keeps nothing")
    configure_logging(session.settings)
    if host not in HOSTS:
        message = f"a carrier at {host} could be reached by others, and it protects nothing"
        raise InvalidValue(message, hint=f"give --host {' or '.join(HOSTS)}")
    values = {name: value for name, value in asdict(world).items() if value is not None}
    values |= {
        "account_sid": account.account,
        "auth_token": account.auth_token,
        "numbers": tuple(account.number or ()),
        "inbound_url": account.sms_url,
    }
    try:
        settings = read_table("carrier", CarrierSettings, values)
    except InvalidValue as error:
        raise InvalidValue(_SETTING.sub(_option, error.message), hint=error.hint) from None
    event_loop.run(_serve(session, Carrier(settings), ListenAddress(host=host, port=port)))


async def _serve(session: Session, carrier: Carrier, address: ListenAddress) -> None:
    listener = Listener(carrier.app, address)
    event_loop.on_signals(lambda _: listener.stop(now=True))
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(listener.run())
            await listener.answers()
            _print_account(session, carrier.settings, listener.url)
    finally:
        await carrier.close()


def _print_account(session: Session, settings: CarrierSettings, url: str) -> None:
    """Say how it is used, once it can be."""
    values = {"account_sid": settings.account, "auth_token": settings.token, "base_url": url}
    if session.json:
        session.terminal.document(values)
        return
    session.terminal.remark(f"a simulated carrier is at {url}; for headway.toml:")
    session.terminal.line("[telephony.twilio]")
    for name, value in values.items():
        session.terminal.line(f'{name} = "{value}"')
