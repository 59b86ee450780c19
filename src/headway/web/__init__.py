"""The dashboard: what is happening, what is held up and why, and acting on it, in a browser.

Everything is at `/ui`: HTML by the server (Jinja2), one style sheet, one script, no build step, and
nothing from another host. A page is live by server-sent events; each of its fragments is rendered
once an interval for all browsers that look at the same, and sent only when it has changed.

How a page is added
-------------------

1. Write `pages/things.py` with one `Page`. It names its `permission` and how far a caller must
   `reach` (a method of `Caller`, such as `Caller.whole`); a caller whom that refuses sees no link.
   `read` takes a `Look` and returns what the template shows. It reads summaries, and takes what
   several pages need from `look.sight`: the overview is read once a second for all of them.
2. Write `templates/things.html`. It extends `page.html`, fills the block `main`, and has one block
   for each name in `fragments`, each alone within an element that has the block's name as its id:

       {% extends "page.html" %}
       {% block main %}
       <div id="rows">{% block rows %} ... {% endblock %}</div>
       {% endblock %}

   Within a fragment give each row a `data-key`: the script then moves rows and does not rewrite
   them. Use `ui.*` of `parts.html` for bars, states, names, empty lists, pages and filters;
   `at | when` for a moment, `at | age` for how long ago, `at | left` for how long until,
   `ms | span` for a span, `n | number`, `text | name` for any text of users, `text | whole` for one
   with lines, `text | sentence` for what a store says of a job; `meter`, `shares`,
   `bars` and `line` for charts. Never mark text as safe.
3. An `Action` names an HTTP route's function as its `endpoint`: its permission, its checks, its
   validation and the `curl` line all come from that route.
   `{{ ui.act(can("name", gate=gate.name)) }}` in a template is its button, and nothing for a caller
   that would be refused. It opens a form in a dialog, or on a page of its own without the script.
4. Add the page to `PAGES` in `pages/__init__.py`. A system instead has an attribute `pages`, with
   `package` as the package whose folder `templates` holds its templates (it is in the package
   data).
5. All that the user chose (filter, cursor, what is open) is in the query string: name each
   parameter in `params`, and read it from `look.values`.

Tests: `tests/web/rig.py` has a server with its dashboard, and clients that keep a token as a
browser does; `tests/servers/browser.py` has a real one.
"""
