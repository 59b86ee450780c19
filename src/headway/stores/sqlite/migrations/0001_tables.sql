-- Small whole numbers stand for what repeats: states (core.state, in its order), lanes, flows,
-- policies, workers. An index is partial wherever only some jobs need it, so that a plain job
-- touches as few as possible.

CREATE TABLE number (
    key INTEGER PRIMARY KEY,
    n INTEGER NOT NULL
) STRICT;

CREATE TABLE fact (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE word (
    no INTEGER PRIMARY KEY,
    text TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE lane (
    no INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    spec BLOB,
    override BLOB,
    level INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE tenant_start (
    lane INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    starts INTEGER NOT NULL,
    PRIMARY KEY (lane, tenant)
) STRICT, WITHOUT ROWID;

CREATE TABLE flow (
    no INTEGER PRIMARY KEY,
    body BLOB NOT NULL UNIQUE
) STRICT;

CREATE TABLE policy (
    no INTEGER PRIMARY KEY,
    body BLOB NOT NULL UNIQUE
) STRICT;

CREATE TABLE job (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    state INTEGER NOT NULL,
    lane INTEGER NOT NULL,
    flow INTEGER NOT NULL,
    policy INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    run INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    care INTEGER NOT NULL,
    blocked_ms INTEGER NOT NULL,
    worker INTEGER,
    last_worker INTEGER,
    request INTEGER NOT NULL,
    claimed_at INTEGER,
    finished_at INTEGER,
    purge_at INTEGER,
    outcome TEXT,
    reason TEXT,
    subject TEXT,
    stage TEXT NOT NULL,
    expires_at INTEGER,
    deadline_at INTEGER,
    entry TEXT,
    fired_at INTEGER,
    key TEXT,
    keyed BLOB,
    ticket TEXT,
    ticket_amount INTEGER NOT NULL,
    parked_at TEXT,
    unfit INTEGER NOT NULL,
    parked_since INTEGER NOT NULL,
    gated INTEGER NOT NULL,
    members BLOB,
    candidate TEXT,
    cascade BLOB,
    cancel_requested INTEGER NOT NULL,
    rest BLOB,
    args BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX job_id ON job (id);
CREATE INDEX job_waiting ON job (lane, flow, priority, due_at) WHERE state = 1;
CREATE INDEX job_scheduled ON job (lane, due_at) WHERE state = 0;
CREATE INDEX job_parked ON job (parked_at, flow, priority, due_at) WHERE state = 2 AND unfit = 0;
CREATE INDEX job_unfit ON job (parked_at) WHERE state = 2 AND unfit = 1;
CREATE INDEX job_ticket ON job (ticket, flow, priority, due_at) WHERE ticket IS NOT NULL;
CREATE INDEX job_worker ON job (worker, id) WHERE state IN (3, 4);
CREATE INDEX job_deadline ON job (deadline_at) WHERE deadline_at IS NOT NULL;
CREATE INDEX job_expiry ON job (expires_at) WHERE expires_at IS NOT NULL AND state <= 2 AND run = 0;
CREATE INDEX job_purge ON job (purge_at) WHERE purge_at IS NOT NULL;
CREATE INDEX job_entry ON job (entry, fired_at) WHERE entry IS NOT NULL AND state <= 4;
CREATE INDEX job_subject ON job (subject) WHERE subject IS NOT NULL;
CREATE INDEX job_ended_badly ON job (state) WHERE state >= 6;

CREATE TABLE run (
    job INTEGER NOT NULL,
    run INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (job, run)
) STRICT, WITHOUT ROWID;

CREATE TABLE template (
    name TEXT PRIMARY KEY,
    spec BLOB NOT NULL,
    override BLOB
) STRICT, WITHOUT ROWID;

CREATE TABLE gate (
    name TEXT PRIMARY KEY,
    template TEXT NOT NULL,
    pool TEXT NOT NULL,
    used INTEGER NOT NULL,
    timer_at INTEGER,
    horizon_at INTEGER,
    rest BLOB
) STRICT, WITHOUT ROWID;

CREATE INDEX gate_timer ON gate (timer_at) WHERE timer_at IS NOT NULL;
CREATE INDEX gate_horizon ON gate (horizon_at) WHERE horizon_at IS NOT NULL;

CREATE TABLE permit (
    job TEXT NOT NULL,
    gate TEXT NOT NULL,
    run INTEGER NOT NULL,
    pool TEXT NOT NULL,
    amount INTEGER NOT NULL,
    since INTEGER NOT NULL,
    hold TEXT NOT NULL,
    PRIMARY KEY (job, gate)
) STRICT, WITHOUT ROWID;

CREATE INDEX permit_gate ON permit (gate, since, job, amount);

CREATE TABLE start (
    gate TEXT NOT NULL,
    at INTEGER NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (gate, at)
) STRICT, WITHOUT ROWID;

CREATE TABLE dedupe (
    tenant TEXT NOT NULL,
    key TEXT NOT NULL,
    job TEXT NOT NULL,
    body BLOB NOT NULL,
    until_at INTEGER,
    PRIMARY KEY (tenant, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE known (
    key TEXT PRIMARY KEY,
    job TEXT NOT NULL,
    run INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX known_job ON known (job);

CREATE TABLE event (
    scope TEXT NOT NULL,
    event TEXT NOT NULL,
    key TEXT NOT NULL,
    at INTEGER NOT NULL,
    kept_until INTEGER,
    payload BLOB NOT NULL,
    UNIQUE (scope, event)
) STRICT;

CREATE INDEX event_kept ON event (key, at) WHERE kept_until IS NOT NULL;
CREATE INDEX event_stale ON event (kept_until) WHERE kept_until IS NOT NULL;

CREATE TABLE worker (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    lanes BLOB NOT NULL,
    seen_at INTEGER NOT NULL,
    lease_until INTEGER NOT NULL,
    request INTEGER NOT NULL,
    lapsed INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX worker_lease ON worker (lease_until) WHERE lapsed = 0;

CREATE TABLE entry (
    name TEXT PRIMARY KEY,
    spec BLOB,
    revision INTEGER NOT NULL,
    last_fired INTEGER,
    ahead_until INTEGER,
    folded INTEGER NOT NULL,
    first_seen_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE trail (
    seq INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    author TEXT NOT NULL,
    reason TEXT NOT NULL,
    verb TEXT NOT NULL,
    target TEXT NOT NULL,
    detail TEXT NOT NULL
) STRICT;

CREATE INDEX trail_target ON trail (target);

CREATE TABLE answer (
    request TEXT PRIMARY KEY,
    at INTEGER NOT NULL,
    answer BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX answer_at ON answer (at);

CREATE TABLE leader (
    role TEXT PRIMARY KEY,
    holder TEXT NOT NULL,
    term INTEGER NOT NULL,
    until_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
