-- publish.lua
--		Publishes one batch; run by Redis for publisher.c.
--
-- All of it happens or nothing, up to the first message that fails; and it
-- happens only if the fence still has the value that the batch builds on. So
-- a batch of a connection that was given up, and which Redis runs late, does
-- nothing; neither do batches in flight behind one that failed. Nor if another
-- data directory holds the lease.
--
-- KEYS: the fence; the lease. Destinations are not declared: one that the ACL
-- forbids would refuse the whole script.
-- ARGV: 1 the value of the fence that this builds on, "" = none; 2 the new
-- value up to the message id, or all of it if there are no messages; 3 value of
-- the lease; 4 its life in ms; then for each message its id in the log, its
-- stream, the length to trim that to (0 = do not), the number of its fields and
-- values, and these.
-- Returns how many messages were added, the error of the next one if it failed
-- (or false), and a list of the places in this batch of all that are refused
-- alike: that one, and those behind it whose streams refuse for the same reason.
-- They are not tried, for nothing may be added behind a message that failed. A
-- key of another type tells by its type; any other reason is asked for by an
-- XADD with the id 0-0, which is checked like any XADD and never adds. So all
-- that a batch's destinations refuse is known, and deferred, in one step.
--
-- The lease is written first, plainly: only the first write of a script can
-- meet "out of memory", "read only", MISCONF and NOREPLICAS, and only a
-- command that denies on OOM is refused, so these stop the batch before any
-- effect.

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
