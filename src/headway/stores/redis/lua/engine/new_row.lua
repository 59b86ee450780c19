-- The row of a job that is made now.
-- needs: base.time, engine.follow_ups

local NewRow = {}

-- Whether a job's end is more than a plain mark.
function NewRow.needs_care(policy)
  return policy.on_final ~= nil
    or policy.cascade
    or policy.keep_ms ~= FollowUps.DEFAULT_POLICY.keep_ms
end

-- Where a job stands that is made now.
function NewRow.state_of(job, due_at)
  if job.policy.cascade and #(job.candidates or {}) == 0 then
    return 'dead'
  end
  -- A fire's overlap is decided when it is promoted, though it be due already.
  if due_at > Time.now or job.entry ~= nil then
    return 'scheduled'
  end
  return 'waiting'
end

-- The row of a job whose shape has its flow and policy numbers; `job.created_at` is given for one
-- that was made elsewhere before.
function NewRow.make(job, shape)
  local now, policy = Time.now, job.policy
  local due_at = job.due_at or now
  local row = {
    id = job.id,
    lane = job.lane,
    tenant = job.tenant,
    kind = job.kind,
    subject = job.subject,
    stage = job.stage or '',
    priority = job.priority,
    due_at = due_at,
    args = job.args,
    flow = shape.flow,
    policy = shape.policy_number,
    state = NewRow.state_of(job, due_at),
    created_at = job.created_at or now,
    expires_at = job.expires_at,
    key = job.key,
    keyed = shape.keyed,
    care = shape.care or job.key ~= nil or job.entry ~= nil,
    life = 1,
    entry = job.entry,
    fired_at = job.fired_at,
  }
  if policy.cascade then
    row.cascade = { left = job.candidates or {}, turn = '', asked = {} }
  end
  return row
end
