-- lease.lua
--		Takes the lease or renews it; run by Redis for redis_lease.c.
--
-- KEYS: the lease. ARGV: our value; how long it lives, in ms. Nothing is written if
-- another data directory holds it.

local lease = redis.call('GET', KEYS[1])
if lease and lease ~= ARGV[1] and string.match(lease, '^%S*') ~= string.match(ARGV[1], '^%S*') then
	return redis.error_reply('LEASE ' .. lease)
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return redis.status_reply('OK')
