-- release.lua
--		Releases the lease; run by Redis for redis_session.c.
--
-- KEYS: the lease. ARGV: our value; the lease is deleted only if it has it.

if redis.call('GET', KEYS[1]) == ARGV[1] then
	return redis.call('DEL', KEYS[1])
end
