-- The keys of a store, in the fixed order in which every call passes them.
--
-- A key is named `{headway:NAMESPACE}:SUFFIX`, and its suffix is the name of the field here: the
-- caller parses this list for the names and their order, so each must be on its own line.
-- needs:

local Keys = {}

-- Jobs: a packed row each, and long values separately.
Keys.jobs = KEYS[1]
Keys.bodies = KEYS[2]
-- By arrival: the numbers of non-empty chunks, and the ids in each.
Keys.chunks = KEYS[3]
Keys.arrivals = KEYS[4]
-- Queues: flow|order|id; lane|flow; lane|due|seq|id; gate|flow|order|id; gate|seq|id;
-- gate|flow|order|amount.
Keys.waiting = KEYS[5]
Keys.flowing = KEYS[6]
Keys.scheduled = KEYS[7]
Keys.parked = KEYS[8]
Keys.unfit = KEYS[9]
Keys.tickets = KEYS[10]
-- By time, the score; seq|id.
Keys.expiry = KEYS[11]
Keys.deadlines = KEYS[12]
Keys.purge = KEYS[13]
-- worker|id; entry|fired|seq|id; tenant|subject|seq|id; state|seq|id.
Keys.held = KEYS[14]
Keys.fired = KEYS[15]
Keys.subjects = KEYS[16]
Keys.ended_badly = KEYS[17]
-- Runs that ended, by id|run; flows and policies by number and back.
Keys.runs = KEYS[18]
Keys.numbers = KEYS[19]
-- Deduplication keys: tenant|key.
Keys.dedupe = KEYS[20]
-- Signals: keys that runs are known by; events by scope|event, indexed by scope, key and time.
Keys.known = KEYS[21]
Keys.events = KEYS[22]
Keys.scopes = KEYS[23]
Keys.kept = KEYS[24]
Keys.stale = KEYS[25]
-- Gates: declarations; rows, indexed by name, timer and horizon.
Keys.templates = KEYS[26]
Keys.gates = KEYS[27]
Keys.gate_names = KEYS[28]
Keys.timers = KEYS[29]
Keys.horizons = KEYS[30]
-- Permits: gate|since|job|amount, gate|job, and all permits of a job; starts: gate|at|number.
Keys.permits = KEYS[31]
Keys.permit_names = KEYS[32]
Keys.permits_of = KEYS[33]
Keys.starts = KEYS[34]
-- Lanes, virtual starts by lane|tenant, jobs by lane|state and by state, totals.
Keys.lanes = KEYS[35]
Keys.tenants = KEYS[36]
Keys.counts = KEYS[37]
Keys.totals = KEYS[38]
-- Workers, and the ends of their leases; timetable entries.
Keys.workers = KEYS[39]
Keys.leases = KEYS[40]
Keys.entries = KEYS[41]
-- The trail by seq, and target|seq; replies to requests, and their times.
Keys.trail = KEYS[42]
Keys.trail_of = KEYS[43]
Keys.answers = KEYS[44]
Keys.answered = KEYS[45]
-- The store's facts, leaders, times when flows were found shut, and waiting processes.
Keys.facts = KEYS[46]
Keys.leaders = KEYS[47]
Keys.shut = KEYS[48]
Keys.waiters = KEYS[49]
-- The channel on which wakes are published; named like a key, for the permissions of users.
Keys.wakes = KEYS[50]
-- By name, for reading all: keys that runs are known by, and lane|tenant.
Keys.known_names = KEYS[51]
Keys.tenant_names = KEYS[52]
-- Tokens by id.
Keys.tokens = KEYS[53]
-- Awaiting jobs, seq|id.
Keys.awaiting = KEYS[54]
-- Unfit jobs, gate|amount|seq|id; those that earlier versions parked are in `unfit`.
Keys.unfit_by_amount = KEYS[55]
