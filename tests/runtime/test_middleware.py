"""Middleware wraps each handler call."""

from __future__ import annotations

from typing import Any

import headway as hw
from tests.runtime.observed_store import ObservedStore, working


async def test_middleware_wraps_handlers_the_first_one_outermost(
    app: hw.App, store: ObservedStore
) -> None:
    seen: list[str] = []

    @app.middleware
    async def outer(job: hw.Job, call_next: Any) -> Any:
        seen.append(f"outer {job.kind}")
        answer = await call_next()
        seen.append("outer ends")
        return f"<{answer}>"

    @app.middleware
    async def inner(job: hw.Job, call_next: Any) -> Any:
        seen.append("inner")
        return await call_next()

    @app.job()
    async def work(job: hw.Job, word: str) -> str:
        seen.append(word)
        return word

    @app.job()
    def threaded(job: hw.Job, word: str) -> str:
        return word

    sent = await app.send_async(work, word="hello")
    async with working(app):
        view = await store.ends(sent.id)
        assert seen == ["outer work", "inner", "hello", "outer ends"]
        other = await store.ends((await app.send_async(threaded, word="plain")).id)
    assert (view.result, other.result) == (b'"<hello>"', b'"<plain>"')


async def test_middleware_sees_failures_and_can_answer_for_a_handler(
    app: hw.App, store: ObservedStore
) -> None:
    @app.middleware
    async def fix(job: hw.Job, call_next: Any) -> Any:
        try:
            return await call_next()
        except ValueError as error:
            raise hw.Dead(str(error)) from error

    @app.job()
    async def work(job: hw.Job) -> None:
        message = "not a number"
        raise ValueError(message)

    sent = await app.send_async(work)
    async with working(app):
        view = await store.ends(sent.id)
    assert (view.state, view.reason) == ("dead", "not a number")
