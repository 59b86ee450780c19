"""What a store can be asked, and the records that it answers with."""

from __future__ import annotations

from headway.contract.views.audit import AuditQuery, AuditView, Difference
from headway.contract.views.flows import FlowsQuery, WaitingFlow
from headway.contract.views.gates import GatesQuery, GateState, HolderView, SpecsQuery
from headway.contract.views.jobs import JobQuery, JobsQuery, JobView, NoteView, RunView
from headway.contract.views.lanes import LanesQuery, LaneView, WorkersQuery, WorkerView
from headway.contract.views.query import Page, Query
from headway.contract.views.stats import StatsQuery, StatsView
from headway.contract.views.timetable import EntryView, TimetableQuery
from headway.contract.views.tokens import TokensQuery, TokenView
from headway.contract.views.trail import TrailQuery, TrailView
from headway.contract.views.why import WhyQuery, WhyView

__all__ = [
    "AuditQuery",
    "AuditView",
    "Difference",
    "EntryView",
    "FlowsQuery",
    "GateState",
    "GatesQuery",
    "HolderView",
    "JobQuery",
    "JobView",
    "JobsQuery",
    "LaneView",
    "LanesQuery",
    "NoteView",
    "Page",
    "Query",
    "RunView",
    "SpecsQuery",
    "StatsQuery",
    "StatsView",
    "TimetableQuery",
    "TokenView",
    "TokensQuery",
    "TrailQuery",
    "TrailView",
    "WaitingFlow",
    "WhyQuery",
    "WhyView",
    "WorkerView",
    "WorkersQuery",
]
