-- publish.lua
--		Publishes one batch; run by Redis for publisher.c.
--
-- Either all of it happens or nothing, up to the first message that fails; and
-- only if the fence still has the value that the batch builds on. So a batch of
-- a connection that was given up does nothing when Redis runs it late, nor do
-- batches in flight behind one that failed, nor does any batch while another
-- data directory holds the lease.
--
-- KEYS: the fence; the lease. Destinations are not declared: one that the ACL
-- forbids would make Redis refuse the whole script.
-- ARGV: 1 the value of the fence that this builds on, "" = none; 2 the new
-- value up to the message id, or all of it if there are no messages; 3 the value
-- of the lease; 4 how long it lives, in ms; then for each message its id in the
-- log, its stream, the length to trim the stream to (0 = do not trim), the number
-- of its fields and values, and these.
-- Returns how many messages were added, the error of the next one if it failed
-- (or false), and the places in this batch of all messages that are refused for
-- the same reason: that one, and those behind it whose streams refuse likewise.
-- These are not tried, for nothing may be added behind a message that failed. A
-- key of another type is known by its type. Any other reason is found by an XADD
-- with the id 0-0, which is checked like any XADD and never adds. So all that
-- the destinations of a batch refuse is known, and deferred, in one step.
--
-- The lease is written first, and not by pcall: only the first write of a script
-- can meet "out of memory", "read only", MISCONF and NOREPLICAS, and only a
-- command that denies on OOM is refused, so these stop the batch before it has
-- any effect.

local fence = redis.call('GET', KEYS[1]) or ''
if fence ~= ARGV[1] then
	return redis.error_reply('FENCE ' .. fence)
end
local lease = redis.call('GET', KEYS[2])
if lease and string.match(lease, '^%S*') ~= string.match(ARGV[3], '^%S*') then
	return redis.error_reply('LEASE ' .. lease)
end
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[4])

local added, last, failure, refused, known, at, place = 0, false, false, {}, {}, 5, 0

local function refuses_alike(stream)
	if known[stream] == nil then
		if string.match(failure, '^WRONGTYPE') then
			local kind = redis.pcall('TYPE', stream).ok
			known[stream] = kind ~= nil and kind ~= 'none' and kind ~= 'stream'
		else
			local reply = redis.pcall('XADD', stream, 'NOMKSTREAM', '0-0', 'no', 'entry')
			known[stream] = type(reply) == 'table' and reply.err == failure
		end
	end
	return known[stream]
end

while at <= #ARGV do
	local from, to, reply = at + 4, at + 3 + ARGV[at + 3]
	if failure then
		if refuses_alike(ARGV[at + 1]) then
			refused[#refused + 1] = place
		end
	else
		if ARGV[at + 2] == '0' then
			reply = redis.pcall('XADD', ARGV[at + 1], '*', unpack(ARGV, from, to))
		else
			reply = redis.pcall('XADD', ARGV[at + 1], 'MAXLEN', '~', ARGV[at + 2], '*', unpack(ARGV, from, to))
		end
		if type(reply) == 'table' and reply.err then
			failure, refused[1] = reply.err, place
		else
			added, last = added + 1, ARGV[at]
		end
	end
	at, place = to + 1, place + 1
end

if last then
	redis.call('SET', KEYS[1], ARGV[2] .. last)
elseif #ARGV == 4 then
	redis.call('SET', KEYS[1], ARGV[2])
end
return {added, failure, refused}
