"""The work of one rendering is limited, whatever its template does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headway.core.errors import InvalidValue
from headway.systems.notifications.message_templates import check_forms, render
from tests.server.problems import problem
from tests.systems.notifications.notify_rig import notifying

# Raised by apprise's own imports.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr':DeprecationWarning")

NESTED = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}hi"
GROW = (
    "{{% set ns = namespace(a={first}, b={first}) %}}{{% for i in range(60) %}}{body}{{% endfor %}}"
)
DOUBLED = GROW.format(
    first="[1]", body="{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}"
)
DEEP = (
    GROW.format(first="(1,)", body="")
    .replace("(60)", "(9000)")
    .replace("%}{% endfor", "%}{% set ns.a = (ns.a,) %}{% endfor")
)
LONG = '"a"*90000'

TOO_MUCH = [
    NESTED,
    "{% for i in range(99999) %}{% for j in range(99999) if false %}{% endfor %}{% endfor %}",
    "{% for i in items %}" * 3 + "{% endfor %}" * 3,
    "{% for i in range(9999) recursive %}{{ loop(range(9999)) if loop.depth < 9 }}{% endfor %}",
    "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "{% filter upper %}" + NESTED + "{% endfilter %}",
    "{% for i in range(99999) %}" + "{% if false %}{% endif %}" * 99 + "{% endfor %}",
    "{% for i in range(99999) %}{% set x %}{{ " + LONG + " }}{% endset %}{% endfor %}",
    GROW.format(first="'ab'", body="{% set ns.a = ns.a ~ ns.a %}"),
    GROW.format(first="'ab'", body="{% set ns.a = ns.a + ns.a %}"),
    GROW.format(first="9999", body="{% set ns.a = ns.a * ns.a %}"),
    GROW.format(first="1", body="{% set ns.a = namespace(x=ns.a, y=ns.a) %}") + "{{ ns }}",
    GROW.format(first="1", body="{% set ns.a = [ns.a]|batch(2, ns.a) %}") + "{{ ns.a|tojson }}",
    DOUBLED + "{{ ns.a }}",
    DOUBLED + "{{ ns.a == ns.b }}",
    DOUBLED + "{{ ns.a is eq ns.b }}",
    DOUBLED + "{{ 'x' ~ ns.a }}",
    DOUBLED + "{{ {}[ns.a].name }}",
    DEEP + "{{ {ns.a: 1}|length }}",
    DEEP + "{{ {}[ns.a] }}",
    DEEP + "{{ ns.a in {} }}",
    "{{ (" + LONG + ")|replace('a', " + LONG + ") }}",
    "{{ (" + LONG + ").replace('a', " + LONG + ") }}",
    "{{ (" + LONG + ").rfind('b' ~ 'a'*45000) }}",
    "{{ (" + LONG + ").join(" + LONG + ") }}",
    "{{ range(99999)|join(" + LONG + ") }}",
    "{{ ('%(a)s'*10000) % {'a': " + LONG + "} }}",
    "{{ ('{0:9999}'*10000).format(1) }}",
    "{{ 'a'|center(999999999) }}",
    "{{ 'a'.ljust(999999999) }}",
    "{{ '\\t'.expandtabs(999999999) }}",
    "{{ 'a\nb'|indent(999999999) }}",
    "{{ {'a': 1}|tojson(indent=999999999) }}",
    "{{ [1]|batch(999999999, 'x') }}",
    "{{ [1]|slice(999999999) }}",
    "{{ 1.5|round(999999999, 'ceil') }}",
    "{{ 1|round(-999999999) }}",
    "{{ '%999999999d' % 1 }}",
    "{{ '%.999999999f' % 1 }}",
    "{{ '%*d' % (999999999, 1) }}",
    "{{ '%(a(b))999999999d' % {'a(b)': 1} }}",
    "{{ '%999999999d'|format(1) }}",
    "{{ '{:999999999}'.format(1) }}",
    "{{ '{:{w}}'.format(1, w=999999999) }}",
    "{{ '{a:999999999}'.format_map({'a': 1}) }}",
    "{{ (5).to_bytes(999999999, 'big') }}",
    "{{ lipsum(999999999) }}",
    "{{ range(99999)|map(attribute='a" + ".a" * 999 + "', default=1) }}",
    "{{ range(0, 2305843009213693951 * 99999, 2305843009213693951)|unique }}",
    "{{ ('f'*90000)|int(0, 16) is divisibleby(('f'*45000)|int(0, 16)) }}",
    "{{ ([[1]]*50000)|sum(start=[]) }}",
    "{{ range(99999)|select('in', range(99999)|list) }}",
    "{% for i in range(99999) %}{% if items|tojson %}{% endif %}{% endfor %}",
    "{% for i in range(99999) %}{% set x = items[1:] %}{% endfor %}",
    "{% for i in range(99999) %}{{ -1 in items }}{% endfor %}",
]
NORMAL = [
    ("{% for r in rows|sort(attribute='n', reverse=true) %}{{ r.n }}{% endfor %}", "21"),
    ("{{ rows|map(attribute='name')|map('upper')|join(', ') }}", "ADA, BOB"),
    ("{{ rows|selectattr('n', 'gt', 1)|map(attribute='name')|first }}", "Bob"),
    ("{{ rows|groupby('n')|length }} {{ rows|sum(attribute='n') }}", "2 3"),
    ("{{ [[1], [2, 3]]|sum(start=[]) }} {{ [1, 2, 3]|batch(2)|list }}", "[1, 2, 3] [[1, 2], [3]]"),
    ("{{ 'Ada Byron'.split(' ')[0]|title }} {{ 'a' in 'Ada' }} {{ 1 < 2 < 3 }}", "Ada True True"),
    ("{{ '%.2f' % 1.5 }} {{ '{:>6,.2f}'.format(1234.5) }} {{ '%5s'|format('a') }}",
     "1.50 1,234.50     a"),
    ("{% for k, v in rows[0].items() %}{{ k }}={{ v }} {% endfor %}", "name=Ada n=1 "),
    ("{% for r in rows if r.n > 1 %}{{ loop.index }}/{{ loop.length }}{% endfor %}", "1/1"),
    ("{% macro hi(x) %}<{{ x }}>{% endmacro %}{{ hi('a') ~ hi('b') }}", "<a><b>"),
    ("{% for x in [[1, [2]], 3] recursive %}{{ loop(x) if x is iterable else x }}{% endfor %}",
     "123"),
    ("{{ no|default('x'*3) }} {{ 2 ** 10 }} {{ 'abc'[1:] }} {{ 1 is none }}", "xxx 1024 bc False"),
    ("{{ 'a {0} {b}'.format(1, b=2) }} {{ '{a}'.format_map({'a': 3}) }}", "a 1 2 3"),
    ("{{ 123456789012345|filesizeformat }} {{ 10|default(99999) }} {{ 'a b'|truncate(99999) }}",
     "123.5 TB 10 a b"),
    ("{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}", "aba"),
    ("{{ range(3)|list }} {{ dict(a=1)|tojson }} {{ rows|length is even }}",
     '[0, 1, 2] {"a": 1} True'),
]  # fmt: skip
ROWS = [{"name": "Ada", "n": 1}, {"name": "Bob", "n": 2}]


@pytest.mark.parametrize("form", ["text", "html"])
@pytest.mark.parametrize("source", TOO_MUCH)
def test_too_expensive_rendering_is_refused(source: str, form: str):
    data: dict[str, Any] = {"items": list(range(20_000))}
    with pytest.raises(InvalidValue, match=rf"^{form}, line \d+: "):
        render({"text": "", form: source}, data)


@pytest.mark.parametrize(("source", "said"), NORMAL)
def test_ordinary_templates_are_rendered(source: str, said: str):
    assert render({"text": source}, {"rows": ROWS}).text == said


def test_long_list_of_rows_is_rendered():
    rows = [{"name": f"n{n}", "price": n, "units": 2} for n in range(2_000)]
    line = "{{ r.name|upper }}: {{ r.units }} of {{ '%.2f' % r.price }} is {{ r.units * r.price }}"
    source = "{% for r in rows|sort(attribute='price') %}" + line + "\n{% endfor %}"
    text = render({"text": source}, {"rows": rows}).text
    assert text.splitlines()[-1] == "N1999: 2 of 1999.00 is 3998"


def test_forms_of_a_message_share_its_budget():
    half = "{% for i in range(90000) %}{% endfor %}"
    render({"text": half}, {})
    with pytest.raises(InvalidValue, match=r"^html, line 1: it is more work than one message"):
        render({"title": half, "text": half, "html": half}, {})


@pytest.mark.parametrize(
    "source",
    [
        "{{ " + "(" * 5_000 + "1" + ")" * 5_000 + " }}",
        "{{ " + "9" * 5_000 + " }}",
        "{% for i in a %}" * 30 + "{% endfor %}" * 30,
        "{{ " + "~".join("a" * 30_000) + " }}",
    ],
    ids=["parentheses", "digits", "loops", "parts"],
)
def test_template_that_cannot_be_compiled_is_refused(source: str):
    with pytest.raises(InvalidValue, match=r"^text: it cannot be compiled: "):
        check_forms({"text": source})


async def test_too_expensive_notification_fails_and_the_next_one_is_sent(tmp_path: Path):
    async with notifying(tmp_path) as notify:
        await notify.ada()
        body = {"id": "loops", "channels": {"default": {"text": NESTED}}}
        await notify.ok("POST", "/message-templates", body, 201)
        reply = await notify.call("POST", "/message-templates/loops/preview", {"channel": "email"})
        said = "text, line 1: it is more work than one message may take"
        assert said in problem(reply, 422, "invalid_value")["detail"]
        bad = await notify.becomes(await notify.send(text="", template="loops"), "FAILED")
        assert bad["reason"].startswith(f"template 'loops', email.{said}")
        assert (await notify.job(bad["id"])).state == "dead"
        await notify.becomes(await notify.send(text="hi"), "SENT")
        assert [one.text for one in notify.email.got] == ["hi"]
