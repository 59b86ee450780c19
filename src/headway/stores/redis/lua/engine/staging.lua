-- The stage at which a job goes on: found before the job changes, entered once it is queued.
-- needs: engine.flow_of, engine.states, engine.step
local Staging = {}

-- A stage with its gates, for a job; see `FlowOf.check` for what is refused.
function Staging.stage_of(step, row, name, gates)
  local flow, keyed = FlowOf.flow_of(step.book, row.lane, row.tenant, row.kind, gates)
  return { name = name, flow = flow, keyed = keyed }
end

-- As `stage_of`; nil for no name, which stays where the job is.
function Staging.another_stage(step, row, name, gates)
  if name == nil or name == '' then
    return nil
  end
  return Staging.stage_of(step, row, name, gates or {})
end

-- A job that is back in its queue goes on at a stage (nil to stay); one that has ended stays as it
-- was.
function Staging.enter(step, row, stage)
  if stage == nil or not States.QUEUED[row.state] then
    return
  end
  row.stage, row.flow, row.keyed = stage.name, stage.flow, stage.keyed
  Step.changed(step, row)
end
