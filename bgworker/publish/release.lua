-- release.lua
--		Gives the lease back; run by Redis for batch.c.
--
-- KEYS: the lease. ARGV: its value, if it is still ours.

if redis.call('GET', KEYS[1]) == ARGV[1] then
	return redis.call('DEL', KEYS[1])
end
