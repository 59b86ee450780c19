"""Random worlds for the decision of one claim, for Python and for Lua alike."""

from __future__ import annotations

from random import Random
from typing import Any

from headway.core.claim import Decision, Park, ParkedJobs, decide
from headway.core.fairness import Fairness
from headway.core.flow import FlowView, Head, Order
from headway.core.gates.slots import UNLIMITED
from headway.core.gates.spec import STRATEGIES, GateKind, GateUse
from headway.core.gates.view import GateView, MemberView

World = dict[str, Any]

_NAMES = ("a", "b", "c%1", "ünder")
_TENANTS = ("", "acme", "Zoë")
_CANDIDATES = ("ann", "bob", "c%d")
TICKET = "a"
"""The gate of all tickets."""


def world(random: Random) -> World:
    """Return the input of a claim: flows with heads, gates, parked jobs, and maximum starts."""
    keyed = [*_NAMES, *(f"{name}:{one}" for name in _NAMES[:2] for one in _CANDIDATES)]
    shared = ["s1", "s2", "s3", "all"]
    gates = {name: _gate(random, name, implicit=name == "all") for name in [*keyed, *shared]}
    seqs = random.sample(range(1, 10_000), 2_000)
    flows = [_flow(random, number, shared, seqs) for number in range(1, _few(random, 5) + 1)]
    parked = [
        [flow["flow"], name, _parked(random, flow, seqs)]
        for flow in flows
        for name in keyed
        if random.random() < (0.9 if name == TICKET else 0.1)
    ]
    return {
        "flows": flows,
        "gates": gates,
        "parked": parked,
        "n": random.choice([1, 2, 3, 8, 50]),
        "free": random.choice([0, 1, 2, 5, 50]),
        "fairness": _fairness(random) if random.random() < 0.4 else None,
    }


def _parked(random: Random, flow: World, seqs: list[int]) -> list[World]:
    many = random.choice([1, 1, 2, 3, 20])
    heads = [{**_head(random, seqs.pop(), plain=False), "ticket": None} for _ in range(many)]
    if random.random() < 0.6:
        # As in most flows, they come after a job with a ticket, and need what it does.
        model = max(flow["heads"], key=lambda head: (head["ticket"] is not None, -head["order"][0]))
        for head in heads:
            head["order"][0] = 4_294_967_295
            if random.random() < 0.9:
                head["keyed"] = [*model["keyed"]]
    return sorted(heads, key=lambda head: head["order"])


def _few(random: Random, most: int) -> int:
    return 1 if random.random() < 0.4 else random.randint(1, most)


def _gate(random: Random, name: str, *, implicit: bool) -> World:
    kind = random.choice([None, "slots"]) if implicit else random.choice([*GateKind])
    most = random.choice([0, 1, 2, 3, 10])
    free = random.randint(0, most)
    members: list[World] = []
    if kind is None or kind == "hours":
        most, free = UNLIMITED, random.choice([0, UNLIMITED, UNLIMITED])
    if kind == "pool":
        for number in range(random.randint(0, 3)):
            capacity = random.choice([0, 1, 2, 5])
            used = random.randint(0, capacity)
            free = random.choice([0, capacity - used])
            one = {"name": f"m{number}", "capacity": capacity, "used": used, "free": free}
            members.append(one)
        most = max((one["capacity"] for one in members), default=0)
        free = max((one["free"] for one in members), default=0)
    return {
        "name": name,
        "kind": str(kind) if kind else None,
        "most": most,
        "free": free,
        "members": members,
        "strategy": random.choice(STRATEGIES),
        "last": random.choice(["", "m0", "m1", "gone"]),
    }


def _order(random: Random, seq: int) -> list[int]:
    return [random.choice([0, 5, 5, 5, 4_294_967_295]), random.choice([10, 10, 2**41]), seq]


def _flow(random: Random, number: int, shared: list[str], seqs: list[int]) -> World:
    plain = random.random() < 0.4
    heads = [_head(random, seqs.pop(), plain=plain) for _ in range(random.randint(1, 12))]
    heads.sort(key=lambda head: head["order"])
    names = random.sample(shared, random.choice([0, 0, 1, 2]))
    return {
        "flow": number,
        "tenant": random.choice(_TENANTS),
        "shared": [[name, random.choice([1, 1, 2])] for name in names],
        "gated": random.random() < 0.5,
        "heads": heads,
        "more": random.random() < 0.5,
    }


def _head(random: Random, seq: int, *, plain: bool) -> World:
    keyed: list[list[Any]] = []
    candidates: list[str] = []
    if not plain:
        names = random.sample(_NAMES, random.choice([0, 1, 1, 2]))
        keyed = [[name, random.choice([1, 1, 2, 4])] for name in names]
        if random.random() < 0.3:
            candidates = random.sample(_CANDIDATES, random.randint(1, 3))
            keyed = [[f"{name}:{{candidate}}", amount] for name, amount in keyed if name in "ab"]
    return {
        "order": _order(random, seq),
        "id": f"job-{seq}",
        "keyed": keyed,
        "ticket": TICKET if keyed and random.random() < 0.5 else None,
        "candidates": candidates,
    }


def _fairness(random: Random) -> World:
    starts = {
        tenant: random.randint(0, 5) * 500_000 for tenant in _TENANTS if random.random() < 0.7
    }
    weights = {tenant: random.choice([1, 2, 3, 7]) for tenant in _TENANTS if random.random() < 0.5}
    held = [tenant for tenant in _TENANTS if random.random() < 0.4]
    level = random.choice([0, 1_000_000])
    return {"level": level, "starts": starts, "weights": weights, "held": held}


def decided(given: World) -> World:
    """Return the decision of `core.claim`, and the resulting gates and starts of the tenants."""
    views = {name: _view(gate) for name, gate in given["gates"].items()}
    parked = {
        (flow, name): [_head_of(one) for one in heads] for flow, name, heads in given["parked"]
    }
    told = given["fairness"]
    fairness = None
    if told is not None:
        starts = dict(told["starts"])
        fairness = Fairness(level=told["level"], starts=starts, weights=told["weights"])
        fairness.ready.update((flow["flow"], flow["tenant"]) for flow in given["flows"])
        fairness.held.update(told["held"])
    decision = decide(
        [_flow_view(flow, views) for flow in given["flows"]],
        lambda use: views[use.name],
        ParkedJobs(
            lambda flow, name: parked[flow, name][0].order if (flow, name) in parked else None,
            lambda flow, name, limit: parked.get((flow, name), [])[:limit],
        ),
        given["n"],
        given["free"],
        fairness,
    )
    if fairness:
        fairness.raise_level()
    return {
        **_world_of(decision),
        "gates": {name: _left(view) for name, view in views.items()},
        "tenants": fairness.starts if fairness else {},
        "level": fairness.level if fairness else 0,
    }


def _view(gate: World) -> GateView:
    return GateView(
        name=gate["name"],
        kind=GateKind(gate["kind"]) if gate["kind"] else None,
        most=gate["most"],
        free=gate["free"],
        members=[MemberView(**one) for one in gate["members"]],
        strategy=gate["strategy"],
        last=gate["last"],
    )


def _flow_view(flow: World, views: dict[str, GateView]) -> FlowView:
    return FlowView(
        flow=flow["flow"],
        tenant=flow["tenant"],
        shared=[(views[name], amount) for name, amount in flow["shared"]],
        gated=flow["gated"],
        heads=[_head_of(head) for head in flow["heads"]],
        more=flow["more"],
    )


def _head_of(head: World) -> Head:
    keyed = tuple(GateUse(name=n, template=n, amount=amount) for n, amount in head["keyed"])
    candidates = tuple(head["candidates"])
    order = Order(*head["order"])
    return Head(order, head["id"], keyed, head["ticket"], candidates, 0, 0, "", None, b"", 1, 0)


def _world_of(decision: Decision) -> World:
    return {
        "starts": [
            [one.head.id, one.flow, dict(one.members), one.candidate, one.gated]
            for one in decision.starts
        ],
        "parks": _places(decision.parks),
        "moved": _places(decision.moved),
        "again": decision.again,
        "closed": [[flow, *order] for flow, order in sorted(decision.closed.items())],
        "reserved": {
            name: [one.reserved.job, one.reserved.amount] if one.reserved else []
            for name, one in decision.reserved.items()
        },
    }


def _places(parks: list[Park]) -> list[list[object]]:
    return [[one.head.id, one.flow, one.gate, one.unfit] for one in parks]


def _left(view: GateView) -> World:
    members = [[one.name, one.used, one.free] for one in view.members]
    return {"free": view.free, "last": view.last, "members": members}


DECIDE = """
local answers = {}
for place, given in ipairs(request) do
  local views, parked = {}, {}
  for name, gate in pairs(given.gates) do
    gate.shut, gate.template, gate.counted = false, '', 0
    views[name] = gate
  end
  local function order_of(order)
    return { priority = order[1], due_at = order[2], seq = order[3] }
  end
  local function read(heads)
    for _, head in ipairs(heads) do
      head.order = order_of(head.order)
      for at, one in ipairs(head.keyed) do
        head.keyed[at] = { name = one[1], template = one[1], amount = one[2] }
      end
    end
    return heads
  end
  for _, one in ipairs(given.parked) do
    parked[one[1] .. one[2]] = read(one[3])
  end
  for _, flow in ipairs(given.flows) do
    for at, one in ipairs(flow.shared) do
      flow.shared[at] = { views[one[1]], one[2] }
    end
    read(flow.heads)
  end
  local fairness
  if given.fairness then
    local known = given.fairness
    fairness = { level = known.level, starts = known.starts, weights = known.weights }
    fairness.ready, fairness.held, fairness.changed, fairness.step = {}, {}, {}, 0
    for _, flow in ipairs(given.flows) do
      fairness.ready[flow.flow] = flow.tenant
    end
    for _, tenant in ipairs(known.held) do
      fairness.held[tenant] = true
    end
  end
  local decision = Claiming.decide(given.flows, function(use)
    return views[use.name]
  end, {
    first = function(flow, name)
      local heads = parked[flow .. name]
      return heads and heads[1].order
    end,
    heads = function(flow, name, limit)
      local heads = {}
      for at = 1, math.min(limit, #(parked[flow .. name] or {})) do
        heads[at] = parked[flow .. name][at]
      end
      return heads
    end,
  }, given.n, given.free, fairness)
  local answer = { starts = {}, again = decision.again, closed = {}, reserved = {} }
  for flow, order in pairs(decision.closed) do
    answer.closed[#answer.closed + 1] = { flow, order.priority, order.due_at, order.seq }
  end
  table.sort(answer.closed, function(a, b)
    return a[1] < b[1]
  end)
  for _, view in pairs(decision.reserved) do
    local kept = view.reserved
    answer.reserved[view.name] = kept and { kept.job, kept.amount } or {}
  end
  for at, one in ipairs(decision.starts) do
    answer.starts[at] = { one.head.id, one.flow, one.members, one.candidate, one.gated }
  end
  for _, list in ipairs({ 'parks', 'moved' }) do
    answer[list] = {}
    for at, one in ipairs(decision[list]) do
      answer[list][at] = { one.head.id, one.flow, one.gate, one.unfit }
    end
  end
  if fairness then
    Fairness.raise_level(fairness)
  end
  answer.level = fairness and fairness.level or 0
  answer.gates, answer.tenants = {}, fairness and fairness.starts or {}
  for name, view in pairs(views) do
    local members = {}
    for at, one in ipairs(view.members) do
      members[at] = { one.name, one.used, one.free }
    end
    answer.gates[name] = { free = view.free, last = view.last, members = members }
  end
  answers[place] = answer
end
return answers
"""
"""Lua that decides the worlds of a request, with the same result format as `decided`."""
