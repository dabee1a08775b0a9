-- stream_end.lua
--		Tells the last id of a stream; run by Redis for cluster_partition_layout.c.
--
-- KEYS: the stream. XINFO STREAM itself answers with the first and the last entry, too, and
-- these may be larger than any answer that is read.

local info = redis.call('XINFO', 'STREAM', KEYS[1])
for at = 1, #info, 2 do
	if info[at] == 'last-generated-id' then
		return info[at + 1]
	end
end
