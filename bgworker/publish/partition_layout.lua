-- partition_layout.lua
--		Tells consumers over how many streams a destination is spread; run by Redis
--		for partition_layout.c, before the first message that is spread so; in a Redis
--		Cluster for cluster_layout.c.
--
-- KEYS: the layout of the stream; the fence; the lease. In a cluster only the first one, for
-- the others are in other slots.
-- ARGV: 1 the value of the fence; 2 the value of the lease; 3 how long that lives,
-- in ms; 4 the field of this database and destination; 5 the stream; 6 how many
-- partitions it has, 0 = none. In a cluster: 1 the field that a connection of ours claims
-- the layout with; 2 its value; 3 the epoch that was read; and behind 6, in turn, the
-- field and the last id of each stream that was to be read up to now.
--
-- Like publish.lua, it does nothing if the fence has moved or another server holds
-- the lease, and its first write is one that a server without memory refuses. It
-- does nothing either if Redis knows that layout. In a cluster it does nothing if
-- another connection has claimed the layout, or another database has changed it.
--
-- Several databases may write to one stream, each with a layout of its own. The
-- partitions to be read are those of all of them: the field 'partitions' is the
-- greatest number. With each change of one of them there is a new epoch, and for each
-- of the streams that were to be read the last id that it has at that moment. The
-- epoch is a time, so that it increases even if Redis has lost the one before. A consumer
-- may not have looked between two changes, so what the layouts before were is kept.

local call, try = redis.call, redis.pcall
local key, field, stream, wanted = KEYS[1], ARGV[4], ARGV[5], tonumber(ARGV[6])

if #KEYS == 1 then
	if call('HGET', key, ARGV[1]) ~= ARGV[2] then
		return redis.error_reply('FENCE another connection has claimed the layout')
	elseif (call('HGET', key, 'epoch') or '') ~= ARGV[3] then
		return redis.error_reply('EPOCH another database has changed the layout')
	end
else
	local fence = call('GET', KEYS[2]) or ''
	if fence ~= ARGV[1] then
		return redis.error_reply('FENCE ' .. fence)
	end
	local lease = call('GET', KEYS[3])
	if lease and lease ~= ARGV[2] and string.match(lease, '^%S*') ~= string.match(ARGV[2], '^%S*') then
		return redis.error_reply('LEASE ' .. lease)
	end
	call('SET', KEYS[3], ARGV[2], 'PX', ARGV[3])
end
if call('HGET', key, field) == ARGV[6] then
	return 0
end

local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local partitions, former, before, epoch = wanted, 0, 0, 0
local entry, ends = call('HGETALL', key), {}
for at = 1, #entry, 2 do
	local name, value = entry[at], tonumber(entry[at + 1])
	if name == 'partitions' then
		former = value
	elseif name == 'former' then
		before = value
	elseif name == 'epoch' then
		epoch = value
	elseif string.match(name, '^of:') and name ~= field then
		partitions = math.max(partitions, value)
	elseif string.match(name, '^end') then
		ends[name] = entry[at + 1]
	end
end

local function note_end(name, of)
	local info = try('XINFO', 'STREAM', of)
	for at = 1, #info, 2 do
		if info[at] == 'last-generated-id' then
			call('HSET', key, name, info[at + 1])
		end
	end
end

if epoch > 0 then
	local past = { former, before }
	if before == 0 then
		past[3] = ends['end'] or '-'
	end
	for partition = 0, before - 1 do
		past[partition + 3] = ends['end:' .. partition] or '-'
	end
	call('HSET', key, string.format('past:%.0f', epoch), table.concat(past, ' '))
end
for name in pairs(ends) do
	call('HDEL', key, name)
end
if #KEYS == 1 then
	for at = 7, #ARGV, 2 do
		call('HSET', key, ARGV[at], ARGV[at + 1])
	end
elseif former == 0 then
	note_end('end', stream)
else
	for partition = 0, former - 1 do
		note_end('end:' .. partition, stream .. ':' .. partition)
	end
end
epoch = string.format('%.0f', math.max(epoch + 1, now))
call('HSET', key, field, wanted, 'former', former, 'partitions', partitions,
	'since', string.format('%.0f', now), 'epoch', epoch)
return 1
