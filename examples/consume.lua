-- consume.lua
--		What a consumer does with one entry; run by Redis, so all of it happens or nothing.
--
-- Adds the amount of an order to the total of its customer, unless the id of the
-- event is known, and acknowledges the entry. An event can come more than once: when
-- a consumer died before it acknowledged, and when Redis had lost its newest writes
-- and the outbox sent them again. The second kind is a new entry of the stream, so
-- what tells them is the field "id". An entry that is no event is poison: it goes to
-- a stream of its own, as it is, where somebody will look at it.
--
-- KEYS: the stream; the hash of totals; the stream for poison. ARGV: the group; the
-- entry; its fields and values. Returns the id, and applied, known or poison.

local REMEMBER = 7 * 24 * 3600 -- seconds

local fields = {}
for i = 3, #ARGV, 2 do
	fields[ARGV[i]] = ARGV[i + 1]
end

local function read_event()
	local is_json, event = pcall(cjson.decode, fields.body or '')
	local is_event = is_json and type(event) == 'table' and type(event.customer) == 'string' and
		type(event.amount) == 'number' and event.amount % 1 == 0
	return fields.id and is_event and event
end

local event = read_event()
local result
if not event then
	redis.call('XADD', KEYS[3], '*', 'entry', ARGV[2], unpack(ARGV, 3))
	result = 'poison'
else
	local mark = ARGV[1] .. ':seen:' .. fields.id
	if redis.call('EXISTS', mark) == 1 then
		result = 'known'
	else
		redis.call('HINCRBY', KEYS[2], event.customer, string.format('%.0f', event.amount))
		redis.call('SET', mark, 1, 'EX', REMEMBER)
		result = 'applied'
	end
end
redis.call('XACK', KEYS[1], ARGV[1], ARGV[2])
return { fields.id or '-', result }
