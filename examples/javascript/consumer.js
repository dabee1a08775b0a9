#!/usr/bin/env node
// Adds up orders: reads their events in a consumer group and applies each once.
//
//     consumer.js URL-OF-REDIS NAME [CLAIM-AFTER [until-idle]]
//
// To be run in the folder of consume.lua, which says what becomes of an event. NAME
// tells this consumer from the others of the group; what another one has read and not
// acknowledged for CLAIM-AFTER ms (60000) is taken over. With until-idle it ends when
// there is nothing to read. Prints for each event its id and what became of it.

const fs = require('node:fs')
const Redis = require('ioredis')

const [STREAM, GROUP, TOTALS, DEAD] = ['order-events', 'totals', 'totals', 'order-events:dead']

async function main (url, name, claimAfter = '60000', untilIdle = null) {
  const server = new Redis(url)
  const script = fs.readFileSync('consume.lua', 'utf8')
  await server.xgroup('CREATE', STREAM, GROUP, '0', 'MKSTREAM').catch((error) => {
    if (!error.message.startsWith('BUSYGROUP')) throw error
  })

  for (;;) {
    const entries = await read(server, name, claimAfter)
    for (const [entry, fields] of entries) {
      const answer = await server.eval(script, 3, STREAM, TOTALS, DEAD, GROUP, entry, ...fields)
      console.log(...answer)
    }
    if (untilIdle && entries.length === 0) break
  }
  server.disconnect()
}

// Returns entries that a dead consumer left, or else new ones, with fields as they are: bytes.
async function read (server, name, claimAfter) {
  const [, abandoned] = await server.callBuffer('XAUTOCLAIM', STREAM, GROUP, name, claimAfter, '0-0', 'COUNT', 100)
  if (abandoned.length > 0) return abandoned
  const answer = await server.callBuffer('XREADGROUP', 'GROUP', GROUP, name, 'COUNT', 100, 'BLOCK', 1000, 'STREAMS', STREAM, '>')
  return answer ? answer[0][1] : []
}

main(...process.argv.slice(2))
