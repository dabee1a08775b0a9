#!/usr/bin/env ruby
# Adds up orders: reads their events in a consumer group and applies each once.
#
#     consumer.rb URL-OF-REDIS NAME [CLAIM-AFTER [until-idle]]
#
# To be run in the folder of consume.lua, which says what becomes of an event. NAME tells
# this consumer from the others of the group; what another one has read and not
# acknowledged for CLAIM-AFTER ms (60000) is taken over. With until-idle it ends when
# there is nothing to read. Prints for each event its id and what became of it.

require 'redis'

STREAM = 'order-events'.freeze
GROUP = 'totals'.freeze
TOTALS = 'totals'.freeze
DEAD = 'order-events:dead'.freeze

# Returns entries that a dead consumer left, or else new ones.
def read(server, name, claim_after)
  abandoned = server.xautoclaim(STREAM, GROUP, name, claim_after, '0-0', count: 100)['entries']
  return abandoned unless abandoned.empty?

  server.xreadgroup(GROUP, name, STREAM, '>', count: 100, block: 1000)[STREAM] || []
end

url, name, claim_after, until_idle = ARGV
server = Redis.new(url: url)
script = File.read('consume.lua')
begin
  server.xgroup(:create, STREAM, GROUP, '0', mkstream: true)
rescue Redis::CommandError => e
  raise unless e.message.start_with?('BUSYGROUP')
end

loop do
  entries = read(server, name, (claim_after || 60_000).to_i)
  entries.each do |entry, fields|
    puts server.eval(script, keys: [STREAM, TOTALS, DEAD], argv: [GROUP, entry, *fields.flatten]).join(' ')
    $stdout.flush
  end
  break if until_idle && entries.empty?
end
