-- publish.lua
--		Publishes one batch; run by Redis for publisher.c.
--
-- Either all of it happens or nothing, up to the first message that fails; and
-- only if the fence still has the value that the batch builds on. So a batch of
-- a connection that was given up does nothing when Redis runs it late, nor do
-- batches under way behind one that failed, nor does any batch while another
-- data directory holds the lease.
--
-- KEYS: the fence; the lease; in a Redis Cluster the fence and the streams, for the
-- lease is in another slot. Elsewhere streams are not declared: one that the ACL
-- forbids would make Redis refuse the whole script.
-- ARGV: 1 the value of the fence that this builds on, "" = none; 2 the value of
-- the lease, "" = it is not among the keys; 3 how long it lives, in ms; then groups of messages; and in the end
-- which messages these are, in one string, and the new value of the fence, which
-- names the window and the id of the last one. The string has the ids of all of
-- them in the log, and in front of the first one of each window "number/uuid".
-- A group is of messages in a row that have the same stream and the same names of
-- fields, so that neither is sent with each of them: how many messages it has;
-- their stream; how many fields each has, 0 = all that follows up to the values is
-- as in the group before; the length to trim the stream to (0 = do not trim); the
-- names; then the values, message by message.
-- Returns how many messages were added, the error of the next one if it failed
-- (or false), and the places in this batch of all messages that are refused for
-- the same reason: that one, and those behind it whose streams refuse likewise.
-- These are not tried, for nothing may be added behind a message that failed. A
-- key of another type is known by its type. Any other reason is found by an XADD
-- with the id 0-0, which is checked like any XADD and never adds. So all that
-- the destinations of a batch refuse is known, and deferred, in one step.
--
-- The lease is written first, or the fence once more, and not by pcall: only the
-- first write of a script can meet "out of memory", "read only", MISCONF and
-- NOREPLICAS, and only a command that denies on OOM is refused, so these stop the
-- batch before it has any effect. What has messages builds on a fence that is there:
-- it was claimed.

local argv, call, try = ARGV, redis.call, redis.pcall

-- A reply is asked for its error, be it text or a table; text has none. If that failed in some
-- server, the script would fail here, before it writes anything.
assert(argv[1].err == nil)

local fence = call('GET', KEYS[1]) or ''
if fence ~= argv[1] then
	return redis.error_reply('FENCE ' .. fence)
end
if argv[2] ~= '' then
	local lease = call('GET', KEYS[2])
	if lease and lease ~= argv[2] and string.match(lease, '^%S*') ~= string.match(argv[2], '^%S*') then
		return redis.error_reply('LEASE ' .. lease)
	end
	call('SET', KEYS[2], argv[2], 'PX', argv[3])
elseif fence ~= '' then
	call('SET', KEYS[1], fence)
end

-- There are no functions, and no tables but those that are needed: for a batch of one message
-- they would be a twentieth of all that Redis does. So the names of three or four fields,
-- which a message without headers has, are not collected in a table either; `plain` is
-- how many fields a group has whose command is not `command`, else 0.
local failure, refused, known = false, {}, nil
local fields, plain, one, two, three, four = 0, 0, nil, nil, nil, nil
local command, first_value, size = nil, 0, 0
local added, place, at, ids = 0, 0, 4, #argv - 1

while at < ids do
	local stream, behind = argv[at + 1], place + tonumber(argv[at])
	at = at + 2
	if argv[at] == '0' then
		at = at + 1
	else
		fields = tonumber(argv[at])
		one, two, three, four = argv[at + 2], argv[at + 3], argv[at + 4], argv[at + 5]
		plain = argv[at + 1] == '0' and (fields == 3 or fields == 4) and fields or 0
		if plain == 0 then
			-- XADD <stream> [MAXLEN ~ <length>] * <name> <value> ...
			command = {'XADD', stream, '*'}
			if argv[at + 1] ~= '0' then
				command = {'XADD', stream, 'MAXLEN', '~', argv[at + 1], '*'}
			end
			first_value = #command + 2
			size = #command + 2 * fields
			for field = 1, fields do
				command[first_value + 2 * field - 3] = argv[at + 1 + field]
			end
		end
		at = at + 2 + fields
	end
	while place < behind do
		if failure then
			if known[stream] == nil then
				if string.match(failure, '^WRONGTYPE') then
					local kind = try('TYPE', stream).ok
					known[stream] = kind ~= nil and kind ~= 'none' and kind ~= 'stream'
				else
					local reply = try('XADD', stream, 'NOMKSTREAM', '0-0', 'no', 'entry')
					known[stream] = type(reply) == 'table' and reply.err == failure
				end
			end
			if known[stream] then
				refused[#refused + 1] = place
			end
			at = at + fields
		else
			local reply
			if plain == 3 then
				reply = try('XADD', stream, '*', one, argv[at], two, argv[at + 1], three, argv[at + 2])
				at = at + 3
			elseif plain == 4 then
				reply = try('XADD', stream, '*', one, argv[at], two, argv[at + 1], three, argv[at + 2], four, argv[at + 3])
				at = at + 4
			else
				command[2] = stream
				for value = first_value, size, 2 do
					command[value] = argv[at]
					at = at + 1
				end
				reply = try(unpack(command, 1, size))
			end
			if reply.err then
				failure, refused[1], known = reply.err, place, {}
			else
				added = added + 1
			end
		end
		place = place + 1
	end
end

local new_fence = argv[ids + 1]
if not failure then
	call('SET', KEYS[1], new_fence)
elseif added > 0 then
	local window, last, left = '', '', added
	for word in string.gmatch(argv[ids], '%S+') do
		if left == 0 then
			break
		elseif string.find(word, '/', 1, true) then
			window = string.gsub(word, '/', ' ')
		else
			last, left = word, left - 1
		end
	end
	local connection = string.match(new_fence, '^%S+ %S+ (%S+)')
	call('SET', KEYS[1], window .. ' ' .. connection .. ' ' .. last)
end
return {added, failure, refused}
