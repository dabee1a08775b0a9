#!/usr/bin/env node
// Handles incoming messages: each becomes an order and an event, in one transaction.
//
//     producer.js postgresql://USER:PASSWORD@HOST:PORT/DATABASE < messages
//
// Reads messages from standard input, one to a line: id, customer, amount. A real
// program would get them from its broker and acknowledge each when handle() has
// returned. Prints for each message whether it was processed, a duplicate, or refused.

const readline = require('node:readline')
const { setTimeout: sleep } = require('node:timers/promises')
const { Client } = require('pg')

async function main (url) {
  // With less, no connection would ever succeed.
  if (!/^postgres(ql)?:\/\/[^@]+@[^/]+\/./.test(url)) {
    console.error('usage: producer.js postgresql://USER:PASSWORD@HOST:PORT/DATABASE < messages')
    process.exit(1)
  }
  let client = null
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const message = line.split(' ')
    let result = null
    let clashed = false
    while (result === null) {
      try {
        client ??= await connect(url)
        result = await handle(client, ...message)
      } catch (error) {
        result = afterError(error, clashed)
        clashed ||= error.code === '23505'
        if (isLost(error)) {
          client?.end().catch(() => {})
          client = null
          console.error('trying again:', error.message || error.code)
          await sleep(100)
        } else {
          await client.query('ROLLBACK')
        }
      }
    }
    console.log(message[0], result)
  }
  await client?.end()
}

async function connect (url) {
  const client = new Client({ connectionString: url })
  client.on('error', () => {}) // a lost connection is told of by the next query too
  await client.connect()
  return client
}

async function handle (client, id, customer, amount) {
  await client.query('BEGIN')
  // The endpoint is an argument and not a SET: a pooler may give the session to others.
  const { rows } = await client.query("SELECT outbox_begin($1, endpoint => 'orders') AS is_new", [id])
  if (rows[0].is_new) {
    await client.query('INSERT INTO orders (customer, amount) VALUES ($1, $2::integer)', [customer, amount])
    await client.query(
      "SELECT outbox_enqueue('order-events', jsonb_build_object('customer', $1::text, 'amount', $2::integer), $3::jsonb)",
      [customer, amount, { type: 'OrderPlaced' }])
    await client.query('SELECT outbox_commit()')
  }
  await client.query('COMMIT')
  return rows[0].is_new ? 'processed' : 'duplicate'
}

// Whether the connection is gone; then it is safe to begin again with the same id.
function isLost ({ code }) {
  return !/^[0-9A-Z]{5}$/.test(code ?? '') || /^(08|57P)/.test(code)
}

// Returns 'refused' for a message that no retry will help, null to try again.
function afterError (error, clashed) {
  if (isLost(error)) return null
  if (error.code === '40001' || error.code === '40P01') return null // another transaction was faster; nothing has happened
  if (error.code === '23505' && !clashed) return null // perhaps a copy was processed meanwhile: then the next try is a duplicate
  if (/^2[23]/.test(error.code)) return 'refused' // poison: to be put where somebody will look at it
  throw error
}

main(process.argv[2])
