"""Templates and charts.

Templates always escape, fail on unknown names, and leave times for the script to show in the
viewer's zone. Charts are inline SVG; the style sheet sets their colours and sizes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache, partial
from importlib.resources import files
from typing import cast
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined, Template, pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from headway.contract.views import GateState
from headway.core.duration import format_duration
from headway.core.errors import InvalidValue
from headway.core.hidden import hidden_text
from headway.core.instant import format_instant, parse_instant
from headway.core.local_time import MAX_AT
from headway.web.page import ENGINE
from headway.web.sign_in import BASE

WIDTH, HEIGHT = 240, 48

_SVG = Markup(
    '<svg class="chart {}" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" '
    'aria-label="{}">{}</svg>'
)
_RECT = Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>')
_PATH = Markup('<path class="{}" d="{}"/>')


def meter(used: float, capacity: float | None, label: str) -> Markup:
    """Return a bar that shows how full something is."""
    part = 0.0 if not capacity else min(1.0, used / capacity)
    state = "full" if part >= 1 else "high" if part >= 0.8 else "some"
    bar = Markup().join(
        [_RECT.format("ground", 0, 0, 100, 6), _RECT.format(state, 0, 0, round(part * 100, 1), 6)]
    )
    return _SVG.format("meter", 100, 6, label, bar)


def shares(parts: Sequence[tuple[str, float]], label: str) -> Markup:
    """Return one bar that shows the parts of a whole.

    Args:
        parts: CSS class and size of each.
        label: Text for screen readers.
    """
    whole = sum(size for _, size in parts)
    bars: list[Markup] = []
    x = 0.0
    for name, size in parts:
        width = 0.0 if not whole else size * 100 / whole
        if width:
            bars.append(_RECT.format(name, round(x, 2), 0, round(width, 2), 6))
        x += width
    ground = _RECT.format("ground", 0, 0, 100, 6)
    return _SVG.format("meter", 100, 6, label, Markup().join([ground, *bars]))


def bars(
    series: Sequence[tuple[str, Sequence[float | None]]], label: str, *, top: float | None = None
) -> Markup:
    """Return a chart of stacked values over time, with a gap for each None.

    Args:
        series: CSS class and values of each, oldest first; all must have the same length.
        label: Text for screen readers.
        top: Value at the upper edge, if it is larger than all sums.
    """
    length = max((len(values) for _, values in series), default=0)
    sums = [sum((values[i] or 0) for _, values in series) for i in range(length)]
    top = max(top or 0, *sums, 1e-9) if sums else 1
    found = [_RECT.format("ground", 0, HEIGHT - 1, WIDTH, 1)]
    each = WIDTH / max(length, 1)
    for i in range(length):
        y = float(HEIGHT)
        for name, values in series:
            high = (values[i] or 0) * (HEIGHT - 2) / top
            if high <= 0:
                continue
            high = max(high, 1)
            y -= high
            found.append(
                _RECT.format(
                    name, round(i * each, 2), round(y, 2), round(each * 0.8, 2), round(high, 2)
                )
            )
    return _SVG.format("bars", WIDTH, HEIGHT, label, Markup().join(found))


def line(
    points: Sequence[tuple[float, float]], label: str, *, span: tuple[float, float], top: float
) -> Markup:
    """Return a step chart of a value over time, filled below.

    Args:
        points: Time and value of each step, oldest first.
        label: Text for screen readers.
        span: Times at the left and right edge.
        top: Value at the upper edge.
    """
    first, last = span
    wide, top = max(last - first, 1e-9), max(top, 1e-9)
    path: list[str] = []
    for at, value in points:
        x = round(max(0.0, (at - first) / wide) * WIDTH, 1)
        y = round(HEIGHT - min(1.0, value / top) * (HEIGHT - 2), 1)
        path.append(f"H{x}V{y}" if path else f"M{x} {HEIGHT}V{y}")
    if path:
        path.append(f"H{WIDTH}V{HEIGHT}Z")
    return _SVG.format("line", WIDTH, HEIGHT, label, _PATH.format("area", "".join(path)))


CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
"""Allows no script on a page except the dashboard's own."""

MEDIA_TYPES = {"dashboard.css": "text/css", "dashboard.js": "text/javascript"}
SHORT = 8
"""Number of last characters of a job's id that are shown: they differ most."""

NONE = "\N{EN DASH}"
"""Shown if there is no value."""
LONGEST = 120
"""Maximum length of a name, in characters; longer ones are abbreviated in the middle."""
MOST_WHOLE = 20_000
"""Maximum length of a multi-line text, in characters."""
MOST_SENTENCE = 2_000
"""Maximum length of a store's sentence, in characters."""
SHOWN_AGAIN = 4_096
"""Size of the caches of rendered names, links and times: pages repeat most of them each second."""
_SEEN = {"\n": "⏎", "\t": "⇥", "\x1b": "␛", "\0": "␀"}
"""Symbols of control characters; others, and bidirectional marks, get a replacement character."""

_IN_SENTENCE = re.compile(
    r"(?P<at>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)(?P<left> \(in [\w ]+\))?"
    r"|(?P<job>\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b)"
)
_JOB = Markup('<a class="id" href="{}" title="{}">{}</a>')
_TIME = Markup('<time datetime="{}" data-{}="{}" title="{}">{}</time>')
_FIRE = Markup(
    '<a class="fire {}" href="{}"><span class="hide">{} </span><span aria-hidden="true">{}</span>'
    " {}</a>"
)
_NAMED = Markup("<b>{}</b> {}")
_HIDDEN = Markup('<span class="hide">{}</span>')
_SIGNS = {
    "succeeded": "✓",
    "dead": "✕",
    "cancelled": NONE,
    "running": "▸",
    "awaiting": "▸",
    "waiting": "…",
    "parked": "…",
}


@cache
def static(name: str) -> bytes:
    """Return one of the dashboard's static files."""
    return files("headway.web").joinpath("static", name).read_bytes()


@cache
def static_url(name: str) -> str:
    """Return the URL of a static file; it changes with the content, so browsers may cache it."""
    return f"{BASE}/-/static/{name}?v={hashlib.sha256(static(name)).hexdigest()[:12]}"


@cache
def environment(package: str) -> Environment:
    """Return the templates of a package, together with the dashboard's own."""
    made = Environment(
        loader=_Both(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = cast("dict[str, object]", made.filters)
    of_time, of_text = (when, age, left, span), (short, name, whole, sentence, said)
    filters |= {one.__name__: one for one in (*of_time, *of_text, number, counted)}
    filters["url"] = partial(quote, safe="")
    tests = cast("dict[str, object]", made.tests)
    tests["template"] = is_template
    known = cast("dict[str, object]", made.globals)
    known |= {one.__name__: one for one in (meter, shares, bars, line, static_url, link, fire)}
    known |= {"base": BASE, "MAX_AT": MAX_AT}
    known["ui"] = made.get_template("parts.html").module
    return made


class _Both(PackageLoader):
    """Loads from the dashboard's own templates first, then from those of a package."""

    def __init__(self, package: str) -> None:
        super().__init__(package, "templates")
        self._own = None if package == ENGINE else PackageLoader(ENGINE, "templates")

    def get_source(
        self, environment: Environment, template: str
    ) -> tuple[str, str, Callable[[], bool] | None]:
        """Return the source of a template."""
        if self._own is not None and template in self._own.list_templates():
            return self._own.get_source(environment, template)
        return super().get_source(environment, template)


def render(package: str, template: str, facts: Mapping[str, object]) -> str:
    """Return a whole page."""
    return environment(package).get_template(template).render(facts)


def fragments(
    package: str, template: str, names: Sequence[str], facts: Mapping[str, object]
) -> dict[str, str]:
    """Return some blocks of a page's template, rendered separately, by name."""
    found: Template = environment(package).get_template(template)
    context = found.new_context({**facts, "live": True})
    return {name: "".join(found.blocks[name](context)) for name in names}


@lru_cache(SHOWN_AGAIN)
def link(path: str, **values: object) -> str:
    """Return a URL within the dashboard; empty values are omitted."""
    query = urlencode({name: value for name, value in values.items() if value not in (None, "")})
    whole = f"{BASE}/{path}" if path else BASE
    return f"{whole}?{query}" if query else whole


def name(text: object) -> Markup:
    """Return a user's text, isolated from the text around it, without invisible characters."""
    whole = str(text)
    return _name(whole) if len(whole) <= LONGEST else _name.__wrapped__(whole)


@lru_cache(SHOWN_AGAIN)
def _name(whole: str) -> Markup:
    seen = "".join(
        one if one.isprintable() else _SEEN.get(one, "\N{REPLACEMENT CHARACTER}") for one in whole
    )
    if len(seen) <= LONGEST:
        return Markup("<bdi>{}</bdi>").format(seen)
    half = LONGEST // 2
    return Markup('<bdi title="{}">{}</bdi>').format(seen, f"{seen[:half]}…{seen[-half:]}")


def said(text: object) -> Markup:
    """Return a user's sentence, such as an error, as `name` does, with its secrets masked."""
    return name(hidden_text(str(text)[:MOST_WHOLE]))


def whole(text: object, most: int = MOST_WHOLE) -> str:
    """Return a user's text with its lines and tabs, but without other invisible characters.

    Secrets are masked.
    """
    given = str(text)
    seen = "".join(
        one if one.isprintable() or one in "\n\t" else _SEEN.get(one, "\N{REPLACEMENT CHARACTER}")
        # More than is shown, so that no secret is cut where it is not recognized any more.
        for one in hidden_text(given[: 2 * most])[:most]
    )
    return seen if len(given) <= most else f"{seen}\n… and more"


def is_template(gate: GateState) -> bool:
    """Return whether a gate is a declaration with keys, at which no job waits itself."""
    return gate.template == gate.name and "{" in gate.name


@pass_context
def sentence(context: Context, text: str) -> Markup:
    """Return a store's sentence with its times in the viewer's zone and its job ids as links."""
    parts: list[Markup | str] = []
    end = 0
    text = whole(text, MOST_SENTENCE)
    for found in _IN_SENTENCE.finditer(text):
        parts.append(text[end : found.start()])
        end = found.end()
        if id := found["job"]:
            parts.append(_JOB.format(link(f"jobs/{id}"), id, short(id)))
            continue
        try:
            at = parse_instant(found["at"])
        except InvalidValue:
            # A reason entered by a user may contain what only looks like a time.
            parts.append(found[0])
            continue
        parts.append(when(at))
        if found["left"]:
            parts.append(Markup(" (in {})").format(left(context, at)))
    return Markup().join([*parts, text[end:]])


def counted(state: str, counts: Mapping[str, int]) -> tuple[str, int]:
    """Return a state with its number of jobs, as a part of `shares`."""
    return state, counts.get(state, 0)


@lru_cache(SHOWN_AGAIN)
def when(at: int | None) -> Markup | str:
    """Return a time in UTC; the script shows it in the viewer's zone."""
    if at is None:
        return NONE
    if at >= MAX_AT:
        return "indefinitely"
    iso = format_instant(at)
    return _TIME.format(iso, "when", at, iso, f"{iso[:10]} {iso[11:19]} UTC")


@pass_context
def age(context: Context, at: int | None) -> Markup | str:
    """Return the time since an instant; the script counts up."""
    return _counted(context, "age", at, -1)


@pass_context
def left(context: Context, at: int | None) -> Markup | str:
    """Return the time until an instant; the script counts down."""
    return _counted(context, "left", at, 1)


def _counted(context: Context, what: str, at: int | None, sign: int) -> Markup | str:
    if at is None:
        return NONE
    if at >= MAX_AT:
        return "indefinitely"
    # The passing of time must not change a live fragment: it has only the instant.
    text = "" if context.get("live") else span(max(0, sign * (at - context["now"])))
    return _time(what, at, text)


@lru_cache(SHOWN_AGAIN)
def _time(what: str, at: int, text: str) -> Markup:
    iso = format_instant(at)
    return _TIME.format(iso, what, at, iso, text)


@lru_cache(SHOWN_AGAIN)
def fire(job: str, state: str, entry: str, at: int, clock: str = "") -> Markup:
    """Return a fire as a link to its job, or to its entry if it has no job yet.

    Args:
        job: The job's id; "" if it has not been created.
        at: ms UTC.
        clock: Wall-clock time shown with the entry's name; without it only a symbol is shown.
    """
    to = link(f"jobs/{job}") if job else link("timetable", entry=entry)
    words = _NAMED.format(clock, name(entry)) if clock else _HIDDEN.format(when(at))
    return _FIRE.format(state, to, state, _SIGNS.get(state, ""), words)


def span(ms: float | None) -> str:
    """Return a duration in its two largest units."""
    if ms is None:
        return NONE
    ms = round(ms)
    return f"{ms} ms" if ms < 1000 else format_duration(ms // 1000 * 1000)


def number(value: float | None) -> str:
    """Return a number for display, rounded and with grouped digits."""
    if value is None:
        return NONE
    if value >= 100 or value == round(value):
        return f"{round(value):,}".replace(",", "\N{NARROW NO-BREAK SPACE}")
    return f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def short(id: str) -> str:
    """Return an id abbreviated to its last characters."""
    return f"…{id[-SHORT:]}" if len(id) > 2 * SHORT else id
