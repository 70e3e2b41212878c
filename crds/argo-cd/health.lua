-- How Argo CD judges an object of sterna.dev: by its conditions, as soon as they speak of its present generation.
-- Without this it takes every custom resource that exists for healthy.
local health = {status = "Progressing", message = "The operator has not looked at it yet"}
local ready, reconciling, stalled = nil, nil, nil

if obj.status ~= nil and obj.status.conditions ~= nil then
  for _, condition in ipairs(obj.status.conditions) do
    if condition.type == "Ready" then ready = condition end
    if condition.type == "Reconciling" then reconciling = condition end
    if condition.type == "Stalled" then stalled = condition end
  end
end

if obj.metadata.deletionTimestamp ~= nil then
  health.message = "Being deleted"
  if ready ~= nil and ready.message ~= nil and ready.message ~= "" then
    health.message = ready.message
  end
  return health
end

if obj.status == nil or obj.status.observedGeneration ~= obj.metadata.generation then
  return health
end

if ready ~= nil and (ready.reason == "Paused" or ready.reason == "Planned") then
  return {status = "Suspended", message = ready.message}
end
if stalled ~= nil and stalled.status == "True" then
  return {status = "Degraded", message = stalled.message}
end
if ready ~= nil and ready.status == "True" and (reconciling == nil or reconciling.status ~= "True") then
  return {status = "Healthy", message = ready.message}
end
if ready ~= nil then
  health.message = ready.message
end
return health
