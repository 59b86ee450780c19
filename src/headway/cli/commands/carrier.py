"""`headway carrier`: a simulated phone network on this machine that speaks Twilio's API."""

from __future__ import annotations

import asyncio
import re
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from headway.cli.command import command, new_command
from headway.cli.extras import needs_extra
from headway.cli.logging import configure_logging
from headway.cli.options import PortOption
from headway.cli.session import CommandSession
from headway.core.errors import InvalidValue
from headway.runtime import event_loop

with needs_extra("systems"):
    from headway.carrier.twilio_requests import CarrierSettings
    from headway.carrier.twilio_server import HOSTS, TwilioCarrier
    from headway.runtime.settings_table import read_table
    from headway.server.listener import ListenAddress, Listener

app = new_command()

_Share = float | None


def _share(text: str) -> object:
    return typer.Option(min=0, max=1, metavar="SHARE", help=text, show_default=False)


def _span(text: str) -> object:
    return typer.Option(metavar="DURATION", help=text, show_default=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class NetworkOptions:
    """The simulated people and network; the names are those of the settings."""

    seed: Annotated[
        int, typer.Option(help="Random seed; the same seed gives the same results.")
    ] = 1
    speed: Annotated[float, typer.Option(help="Speed relative to real time.")] = 1.0
    answer: Annotated[_Share, _share("Share of calls that are answered (default: 14 of 19).")] = (
        None
    )
    busy: Annotated[_Share, _share("Share of calls that get a busy signal (default: 2 of 19).")] = (
        None
    )
    no_answer: Annotated[
        _Share, _share("Share of calls that are not answered (default: 2 of 19).")
    ] = None
    failed: Annotated[
        _Share, _share("Share of calls that cannot be connected (default: 1 of 19).")
    ] = None
    refused: Annotated[_Share, _share("Share of requests refused because of the number.")] = None
    unsure: Annotated[_Share, _share("Share of calls placed without a reply to the request.")] = (
        None
    )
    accept: Annotated[
        _Share, _share("Share of people who press or text 1 (default: 10 of 20).")
    ] = None
    decline: Annotated[
        _Share, _share("Share of people who press or text 2 (default: 6 of 20).")
    ] = None
    hang_up: Annotated[_Share, _share("Share of answered calls that are hung up early.")] = None
    post_lost: Annotated[_Share, _share("Share of webhooks that are never delivered.")] = None
    post_late: Annotated[_Share, _share("Share of webhooks delivered 5 s to 2 min late.")] = None
    post_twice: Annotated[_Share, _share("Share of webhooks delivered twice.")] = None
    post_disordered: Annotated[_Share, _share("Share of webhooks delivered out of order.")] = None
    ring: Annotated[str | None, _span('Ringing time: "5s", or a range "1s,20s".')] = None
    talk: Annotated[str | None, _span('Call duration: "1m", or a range "20s,4m".')] = None
    think: Annotated[str | None, _span("Time people take to press a key or reply.")] = None


@dataclass(frozen=True, kw_only=True, slots=True)
class AccountOptions:
    """The account, its numbers and its webhooks."""

    account: Annotated[
        str | None,
        typer.Option(
            metavar="SID",
            help="Account SID: AC and 32 hex digits. Derived from the seed by default.",
        ),
    ] = None
    auth_token: Annotated[
        str | None,
        typer.Option(metavar="TOKEN", help="Auth token. Derived from the seed by default."),
    ] = None
    number: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PHONE", help="Number of the account; repeatable. Any number by default."
        ),
    ] = None
    sms_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Webhook URL for incoming messages.")
    ] = None


_OPTIONS = {"account_sid": "account", "numbers": "number", "inbound_url": "sms_url"}
"""Options whose names differ from their settings."""
_SETTING = re.compile(r"^carrier\.(\w+)(?:\.\d+)?")


def _option(setting: re.Match[str]) -> str:
    return f"--{_OPTIONS.get(setting[1], setting[1]).replace('_', '-')}"


@command(app)
def carrier(
    session: CommandSession,
    network: NetworkOptions,
    account: AccountOptions,
    host: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="Address to listen on: 127.0.0.1 or localhost only."),
    ] = "127.0.0.1",
    port: PortOption = 4010,
) -> None:
    """Simulate a phone network, until SIGTERM or Ctrl-C. No real phone is called.

    It implements Twilio's API and signs webhooks as Twilio does, so systems can be tried without an
    account. It prints the lines to put into headway.toml.

    Raises:
        InvalidValue: the host is not this machine, or an option is not valid.
    """
    session.refuse_store("omit it: a carrier stores nothing")
    configure_logging(session.settings)
    if host not in HOSTS:
        message = f"a carrier on {host} would be reachable by others, and it has no access control"
        raise InvalidValue(message, hint=f"pass --host {' or '.join(HOSTS)}")
    values = {name: value for name, value in asdict(network).items() if value is not None}
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
    event_loop.run(_serve(session, TwilioCarrier(settings), ListenAddress(host=host, port=port)))


async def _serve(session: CommandSession, carrier: TwilioCarrier, address: ListenAddress) -> None:
    listener = Listener(carrier.app, address)
    event_loop.on_signals(lambda _: listener.stop(now=True))
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(listener.run())
            await listener.answers()
            _print_account(session, carrier.settings, listener.url)
    finally:
        await carrier.close()


def _print_account(session: CommandSession, settings: CarrierSettings, url: str) -> None:
    """Print the settings that select this carrier."""
    values = {"account_sid": settings.account, "auth_token": settings.token, "base_url": url}
    if session.json:
        session.terminal.document(values)
        return
    session.terminal.remark(f"simulated carrier listening on {url}; for headway.toml:")
    session.terminal.line("[telephony.twilio]")
    for name, value in values.items():
        session.terminal.line(f'{name} = "{value}"')
