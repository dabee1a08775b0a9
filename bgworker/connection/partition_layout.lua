-- partition_layout.lua
--		Tells consumers over how many streams a destination is spread; run by Redis
--		for partition_layout.c, before the first message that is spread so; in a Redis
--		Cluster for cluster_partition_layout.c.
--
-- KEYS: the layout of the stream; the fence; the lease. In a cluster only the first one, for
-- the others are in other slots.
-- ARGV: 1 the value of the fence; 2 the value of the lease; 3 how long that lives,
-- in ms; 4 the field of this database and destination; 5 the stream; 6 how many
-- partitions it has, 0 = none; 7 the epoch of the new layout. In a cluster: 1 the field
-- that a connection of ours claims the layout with; 2 its value; 3 the epoch that was read;
-- and behind 7, in turn, the field and the last id of each stream that was to be read up to now.
--
-- Returns 0 if consumers can read the layout from now on. If it is not there, and the
-- epoch is not greater than that of the layout that is, returns the least that may be used.
-- What is there is used only if an outbox can have written it: others may write to Redis, too.
--
-- Like publish.lua, it does nothing if the fence has moved or another server holds
-- the lease, and its first write is one that a server without memory refuses. In a
-- cluster it does nothing if another connection has claimed the layout, or another
-- database has changed it.
--
-- Several databases may write to one stream, each with a layout of its own. The
-- partitions to be read are those of all of them: the field 'partitions' is the
-- greatest number. The stream itself is to be read as well, whatever the number is:
-- a database that has no partitions tells nothing here. With each change of one of them
-- there is a new epoch, and for each of the streams that were to be read the last id
-- that it has at that moment.
--
-- A consumer may not have looked between two changes, so what the layouts before were
-- is kept, until no stream has an entry of before their beginning. (In a cluster, where the
-- streams are in other slots, all are kept.)

local call = redis.call
local is_alone = #KEYS > 1 -- not in a cluster

if is_alone then
	local fence = call('GET', KEYS[2]) or ''
	if fence ~= ARGV[1] then
		return redis.error_reply('FENCE ' .. fence)
	end
	local lease = call('GET', KEYS[3])
	if lease and lease ~= ARGV[2] and string.match(lease, '^%S*') ~= string.match(ARGV[2], '^%S*') then
		return redis.error_reply('LEASE ' .. lease)
	end
	call('SET', KEYS[3], ARGV[2], 'PX', ARGV[3])
elseif call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then
	return redis.error_reply('FENCE another connection has claimed the layout')
end

local key, field, stream, wanted, epoch = KEYS[1], ARGV[4], ARGV[5], ARGV[6], tonumber(ARGV[7])
if call('HGET', key, field) == wanted then
	return 0
end

local partitions, former, before, last = tonumber(wanted), 0, 0, 0
local fields, ends, past, strange = call('HGETALL', key), {}, {}, nil

-- A number as it is written here, in digits: tonumber() takes '5e15' for one as well. What is
-- none, or has too many digits, is noted as strange.
local function number_of(name, text, digits)
	if not string.match(text, '^%d+$') or #text > digits then
		strange = name
		return 0
	end
	return tonumber(text)
end

-- Ids of entries, or '-' for none, with blanks between them.
local function check_ids(name, text)
	for word in string.gmatch(text, '%S+') do
		if word ~= '-' and not string.match(word, '^%d+%-%d+$') then
			strange = name
		end
	end
	return text
end

for at = 1, #fields, 2 do
	local name, value = fields[at], fields[at + 1]
	if name == 'partitions' then
		former = number_of(name, value, 4)
	elseif name == 'former' then
		before = number_of(name, value, 4)
	elseif name == 'epoch' then
		last = number_of(name, value, 15)
	elseif string.match(name, '^of:') and name ~= field then
		partitions = math.max(partitions, number_of(name, value, 4))
	elseif string.match(name, '^end') then
		ends[name] = check_ids(name, value)
	elseif string.match(name, '^past:') then
		check_ids(name, string.match(value, '^%d+ %d+ (.*)') or 'none')
		past[#past + 1] = { epoch = number_of(name, string.sub(name, 6), 15), name = name, value = value }
	end
end
if strange then
	return redis.error_reply('ERR the field ' .. strange .. ' of ' .. key ..
		' is not as the outbox writes it. Delete that key: it is written again')
elseif not is_alone and (call('HGET', key, 'epoch') or '') ~= ARGV[3] then
	return redis.error_reply('EPOCH another database has changed the layout')
elseif epoch <= last then
	return last + 1
end

-- The partition -1 is the stream itself. Returns the id of its first entry and its last id;
-- nil if there is none. The entries themselves, which may be large, are not kept.
local known = {}
local function bounds_of(partition)
	if not known[partition] then
		local name, bounds = partition < 0 and stream or stream .. ':' .. partition, {}
		if call('TYPE', name).ok == 'stream' then
			local info = call('XINFO', 'STREAM', name)
			for at = 1, #info, 2 do
				if info[at] == 'first-entry' then
					bounds.first = info[at + 1] and info[at + 1][1]
				elseif info[at] == 'last-generated-id' then
					bounds.last = info[at + 1]
				end
			end
		end
		known[partition] = bounds
	end
	return known[partition].first, known[partition].last
end

local function is_behind(id, other)
	local ms, count = string.match(id, '(%d+)-(%d+)')
	local other_ms, other_count = string.match(other, '(%d+)-(%d+)')
	if ms ~= other_ms then
		return tonumber(ms) > tonumber(other_ms)
	end
	return tonumber(count) > tonumber(other_count)
end

-- Whether a stream has an entry of before that layout.
local function has_entries_before(layout)
	local partition = -3
	for word in string.gmatch(layout, '%S+') do
		if partition >= -1 and word ~= '-' then
			local first = bounds_of(partition)
			if first and not is_behind(first, word) then
				return true
			end
		end
		partition = partition + 1
	end
	return false
end

-- The layout that is over now is the last of those that are.
if last > 0 then
	local words = { former, before, ends['end'] or '-' }
	for partition = 0, before - 1 do
		words[partition + 4] = ends['end:' .. partition] or '-'
	end
	past[#past + 1] = { epoch = last, name = string.format('past:%.0f', last), value = table.concat(words, ' ') }
end
table.sort(past, function (one, other) return one.epoch < other.epoch end)
local needed = 1
while is_alone and needed <= #past and not has_entries_before(past[needed].value) do
	needed = needed + 1
end
local now_ends = {}
for at = 8, #ARGV, 2 do
	now_ends[ARGV[at]] = ARGV[at + 1]
end
for partition = -1, is_alone and former - 1 or -2 do
	local _, id = bounds_of(partition)
	now_ends[partition < 0 and 'end' or 'end:' .. partition] = id
end
local time = call('TIME')

-- From here on it writes.
for name in pairs(ends) do
	call('HDEL', key, name)
end
for at, layout in ipairs(past) do
	if at < needed then
		call('HDEL', key, layout.name)
	else
		call('HSET', key, layout.name, layout.value)
	end
end
for name, id in pairs(now_ends) do
	call('HSET', key, name, id)
end
call('HSET', key, field, wanted, 'former', former, 'partitions', partitions,
	'since', string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000)), 'epoch', string.format('%.0f', epoch))
return 0
