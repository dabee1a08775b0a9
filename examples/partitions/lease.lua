-- lease.lua
--		Who of a group of workers works on which partition; run by Redis, so that all of
--		them see one answer.
--
-- A worker calls this again before its lease is over, between two transactions, and works
-- on what the answer names. A worker that did not call in time is no longer one of the
-- group, and others get its partitions. Each has its share, which becomes smaller when
-- another one joins: the partitions beyond it are given back here.
--
-- This keeps two workers from doing the same work. It does not keep the order: a worker
-- that was stopped does not know that its lease is over, and Redis may lose what it was
-- told. That is what the token in consumer_position is for.
--
-- All workers of a group have leases of the same length. If the clock of Redis is set back, those
-- that were taken before are cut to that length, so that a worker that died does not live on.
--
-- KEYS: the workers, with the time at which their leases end; the partitions, with their
-- workers. ARGV: the worker; its lease in ms, 0 to leave; the first partition, and the
-- one behind the last.
-- Returns the partitions of the worker.

local me, lease, first, behind = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local width = behind - first
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if lease > 0 then
	for _, worker in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. string.format('%.0f', now + lease), '+inf')) do
		redis.call('ZADD', KEYS[1], now + lease, worker)
	end
	redis.call('ZADD', KEYS[1], now + lease, me)
else
	redis.call('ZREM', KEYS[1], me)
end

-- The share of each worker differs by one at most; who has one more goes by the names.
local workers = redis.call('ZRANGE', KEYS[1], 0, -1)
local alive, share = {}, 0
table.sort(workers)
for rank, worker in ipairs(workers) do
	alive[worker] = true
	if worker == me then
		share = math.floor(width / #workers) + (rank <= width % #workers and 1 or 0)
	end
end

local owner, flat = {}, redis.call('HGETALL', KEYS[2])
for i = 1, #flat, 2 do
	owner[flat[i]] = flat[i + 1]
	if tonumber(flat[i]) < first or tonumber(flat[i]) >= behind then
		redis.call('HDEL', KEYS[2], flat[i])
	end
end

local mine, free = {}, {}
for partition = first, behind - 1 do
	local name = string.format('%d', partition)
	if owner[name] == me then
		mine[#mine + 1] = partition
	elseif not alive[owner[name] or ''] then
		free[#free + 1] = partition
	end
end
while #mine > share do
	redis.call('HDEL', KEYS[2], string.format('%d', table.remove(mine)))
end
for _, partition in ipairs(free) do
	if #mine >= share then
		break
	end
	redis.call('HSET', KEYS[2], string.format('%d', partition), me)
	mine[#mine + 1] = partition
end
return mine
