-- Errors that end a script on purpose: a refusal, or a question that only the client can answer.
-- needs:

local Fail = {}

-- Refuses the verb: the runner undoes what was written and replies with the error.
--   name: the class of the error, as "KeyConflict".
function Fail.refuse(name, message, hint)
  error({ refused = { error = name, message = message, hint = hint or '' } }, 0)
end

-- Asks the client for hours that a script cannot work out; it sends the same request with them.
--   hours: an array of {name, template, zone, spec}.
function Fail.need(hours)
  error({ need = { hours = hours } }, 0)
end
