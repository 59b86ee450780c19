-- Write the starts of a claim: permits, starts of rates, and jobs' rows; those of one decision are
-- gathered and written together.
-- needs: rules.cached_gates, base.codec, base.time, tables.jobs, tables.permits, tables.counts
-- needs: tables.starts
-- needs: rules.cascade, engine.gate_cache, engine.gate_kinds, engine.gate_names, engine.lane_flows

local StartWriter = {}

local NO_NEEDS = {}

-- Create a writer for the starts of one decision in a lane.
--   request: of the claim.
function StartWriter.new(cache, request, lane)
  return {
    cache = cache,
    request = request,
    lane = lane,
    plain = {},
    gated = {},
    -- Kind of permit, job, run, kind, job, run, ...
    permits = {},
    -- Each in order of first use, and by name.
    rates = {},
    rate_at = {},
    -- Gates that may be reserved for a starting job, and those that were.
    reserved = {},
    ended = {},
    used = {},
    used_at = {},
    last = {},
    last_at = {},
    -- What each start of a flow takes, by flow.
    needs = {},
  }
end

-- Return how long the flow was shut while the job waited in it.
local function blocked_ms(start)
  local order, now = start.head.order, Time.now
  local shut = LaneFlows.shut_ms(start.flow, order.due_at, now)
  -- The flow may have been shut while the job was parked: no time is counted twice.
  local waited = now - order.due_at - start.head.blocked_ms
  return math.max(0, math.min(shut, waited))
end

-- Return what each start of a flow takes: {gate, kind, rules, template, amount, hold, kinds}.
local function needs_of_flow(writer, view)
  local needs = writer.needs[view.flow]
  if needs ~= nil then
    return needs
  end
  -- `alike`: members that starts of the flow chose.
  needs = { alike = {} }
  local uses = {}
  for _, use in ipairs(Jobs.flow(view.flow).shared) do
    uses[use.name] = use
  end
  for _, one in ipairs(view.shared) do
    local gate, amount = one[1], one[2]
    if gate.kind ~= nil then
      local use = uses[gate.name]
      needs[#needs + 1] = {
        gate = gate.name,
        kind = gate.kind,
        rules = GateKinds.of(gate.kind),
        template = use and use.template or '',
        amount = amount,
        hold = use and use.hold or GateNames.implicit_hold(gate.name),
        kinds = {},
      }
    end
  end
  writer.needs[view.flow] = needs
  return needs
end

-- Return what one start takes at its keyed gates.
local function needs_of_job(writer, start)
  if #start.head.keyed == 0 then
    return NO_NEEDS
  end
  local needs = {}
  for place, asked in ipairs(start.head.keyed) do
    local use = Cascade.in_turn(asked, start.candidate)
    local kind = CachedGates.view(writer.cache, use).kind
    needs[place] = {
      gate = use.name,
      kind = kind,
      rules = GateKinds.of(kind),
      template = use.template,
      amount = use.amount,
      hold = use.hold,
      kinds = {},
    }
  end
  return needs
end

-- Return the record of a name in a list, created if missing.
local function record_of(list, by_name, name, template)
  local record = by_name[name]
  if record == nil then
    record = { gate = name, template = template, number = 0 }
    by_name[name] = record
    list[#list + 1] = record
  end
  return record
end

-- Return the kind of permit that a start takes; the same for starts with the same need and member
-- ("" if there are none).
local function kind_of(writer, need, member)
  local kinds = need.kinds
  if kinds[member] == nil then
    local gate, pool = GateKinds.permit_gate(need.kind, need.gate, member)
    local kind = Permits.kind(gate, pool, need.amount, Time.now, need.hold)
    kind.used = record_of(writer.used, writer.used_at, gate, need.template)
    kind.used.pool = pool
    kinds[member] = kind
  end
  return kinds[member]
end

-- Take from one gate. Return the chosen member of a pool, otherwise "".
local function take(writer, start, need)
  if need.amount > 1 then
    writer.reserved[#writer.reserved + 1] = { gate = need.gate, job = start.head.id }
  end
  local rules = need.rules
  if rules.counts_starts then
    local rate = record_of(writer.rates, writer.rate_at, need.gate, need.template)
    rate.number = rate.number + need.amount
  end
  if not rules.takes_permits then
    return ''
  end
  local member, permits = '', writer.permits
  if rules.chooses_member then
    member = start.members[need.gate]
    record_of(writer.last, writer.last_at, need.gate, need.template).member = member
  end
  local kind, count = kind_of(writer, need, member), #permits
  kind.used.number = kind.used.number + need.amount
  permits[count + 1], permits[count + 2], permits[count + 3] =
    kind, start.head.id, start.head.run + 1
  return member
end

-- Return one table for starts of a flow with the same members, so that it is packed once.
local function shared_members(needs, members)
  local chosen = ''
  for _, need in ipairs(needs) do
    if need.rules.chooses_member then
      chosen = chosen .. Codec.name(members[need.gate])
    end
  end
  local known = needs.alike[chosen]
  if known == nil then
    known = members
    needs.alike[chosen] = known
  end
  return known
end

-- Add one start.
--   view: of its flow.
function StartWriter.add(writer, start, view)
  local head, blocked = start.head, blocked_ms(start)
  if not start.gated and start.candidate == '' and blocked == 0 then
    writer.plain[#writer.plain + 1] = head.id
    return
  end
  local needs, members = needs_of_flow(writer, view), {}
  for _, need in ipairs(needs) do
    members[need.gate] = take(writer, start, need)
  end
  for _, need in ipairs(needs_of_job(writer, start)) do
    members[need.gate] = take(writer, start, need)
  end
  if #start.head.keyed == 0 then
    members = shared_members(needs, members)
  end
  local cascade
  if start.candidate ~= '' then
    local row = Jobs.load({ head.id })[head.id]
    cascade = row.cascade and Cascade.begin(row.cascade, start.candidate) or nil
  end
  writer.gated[#writer.gated + 1] = {
    id = head.id,
    members = members,
    candidate = start.candidate,
    cascade = cascade,
    blocked_ms = blocked,
  }
end

-- Write the starts.
function StartWriter.write(writer)
  local cache, request = writer.cache, writer.request
  local n = #writer.plain + #writer.gated
  if n == 0 then
    return
  end
  if #writer.plain > 0 then
    Jobs.start_plain(writer.plain, request.worker, request.request)
  end
  if #writer.gated > 0 then
    Jobs.start_gated(writer.gated, request.worker, request.request)
  end
  for _, one in ipairs(writer.used) do
    CachedGates.count_taken(cache, one.gate, one.template, one.number, one.pool)
  end
  for _, one in ipairs(writer.last) do
    CachedGates.remember_member(cache, one.gate, one.template, one.member)
  end
  for _, one in ipairs(writer.reserved) do
    if CachedGates.unreserve(cache, one.gate, one.job) then
      writer.ended[#writer.ended + 1] = one.gate
    end
  end
  if #writer.permits > 0 then
    Permits.take(writer.permits)
  end
  if #writer.rates > 0 then
    local numbers = {}
    for _, one in ipairs(writer.rates) do
      CachedGates.count_starts(cache, one.gate, one.template, one.number)
      numbers[one.gate] = one.number
    end
    Starts.add(numbers)
  end
  Counts.move(writer.lane, 'waiting', 'running', n)
  Counts.happened('started', n)
end
