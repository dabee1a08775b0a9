-- add.lua
--		Adds ids to a deduplication store; run by Redis for store_redis.c.
--
-- KEYS: the watermark, then the ids. ARGV: the value of the watermark, its new value,
-- and then the milliseconds of each id, 0 forever. Only the first write can be refused.

local call, mark = redis.call, KEYS[1]

if (call('GET', mark) or '') ~= ARGV[1] then
	return redis.error_reply('WATERMARK it has lost ids')
end
for i = 2, #KEYS do
	if ARGV[i + 1] == '0' then
		call('SET', KEYS[i], '1')
	else
		call('SET', KEYS[i], '1', 'PX', ARGV[i + 1])
	end
end
call('SET', mark, ARGV[2])
return redis.status_reply('OK')
