"""The dashboard: shows what runs, what is held up and why, and offers operators' actions.

Everything is served under `/ui`: HTML rendered by the server (Jinja2), one style sheet, one script,
no build step, and nothing from another host. Pages are kept live by server-sent events; each
fragment is rendered once per interval for all browsers with the same view, and sent only when it
has changed.

How a page is added
-------------------

1. Write `pages/things.py` with one `DashboardPage`. It names its `permission` and the scope that a
   caller must `reach` (a method of `Caller`, such as `Caller.whole`); callers that it refuses see
   no link.
   `read` takes a `PageView` and returns the template's context. It should read summaries, and take
   what several pages need from `view.reads`, which reads the overview once a second for all pages.
2. Write `templates/things.html`. It extends `page.html`, fills the block `main`, and has one block
   for each name in `fragments`, each the only content of an element with the block's name as id:

       {% extends "page.html" %}
       {% block main %}
       <div id="rows">{% block rows %} ... {% endblock %}</div>
       {% endblock %}

   Within a fragment, give each row a `data-key`, so that the script moves rows instead of rewriting
   them. Use the macros `ui.*` from `parts.html` for bars, states, names, empty lists, paging and
   filters; `at | when` for an instant, `at | age` for the time since, `at | left` for the time
   until, `ms | span` for a duration, `n | number`, `text | name` for a user's name of something,
   `text | said` for a user's sentence, such as a reason or an error, `text | whole` if it has
   several lines, `text | sentence` for a store's explanation of a job; the last three mask secrets;
   `meter`, `shares`, `bars` and `line` for charts. Never mark text as safe.
3. An `Action` names an HTTP route's function as its `endpoint`: permission, checks, validation and
   the `curl` line all come from that route.
   `{{ ui.act(can("name", gate=gate.name)) }}` in a template renders its button, or nothing if the
   route would refuse the caller. It opens a form in a dialog, or on a separate page if the script
   does not run.
4. Add the page to `PAGES` in `pages/__init__.py`. A system has an attribute `pages` instead, whose
   pages set `package` to the package that contains their `templates` folder (included in the
   package data).
5. Keep every choice of the user (filter, cursor, open item) in the query string: name each
   parameter in `params`, and read it from `view.values`.

Tests: `tests/web/rig.py` provides a server with a dashboard, and clients that keep a token as a
browser does; `tests/servers/browser.py` provides a real browser.
"""
