-- add.lua
--		Adds ids to a deduplication store; run by Redis for store_redis.c.
--
-- KEYS: the watermark. ARGV: its value, its new value or nothing, and then each key
-- and its milliseconds, 0 for ever. Only the first write can be refused.

if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then
	return redis.error_reply('WATERMARK it has lost ids')
end
for i = 3, #ARGV, 2 do
	if ARGV[i + 1] == '0' then
		redis.call('SET', ARGV[i], '1')
	else
		redis.call('SET', ARGV[i], '1', 'PX', ARGV[i + 1])
	end
end
if ARGV[2] ~= '' then
	redis.call('SET', KEYS[1], ARGV[2])
end
return redis.status_reply('OK')
