#!/usr/bin/env node
// Works on the partitions of a stream, beside others of the same group.
//
//     worker.js URL-OF-POSTGRESQL URL-OF-REDIS STREAM GROUP NAME [LEASE [PAUSE]]
//
// The URL of a Redis Cluster is redis+cluster://host:port,host:port,… with some of its nodes.
// To be run in the folder of lease.lua, which says who works on which partition. GROUP is
// an endpoint of the database; NAME tells this worker from the others. One that was not
// heard of for LEASE ms (10000) loses its partitions to the others. PAUSE (0) is how many
// ms the handler takes.
//
// Messages of one key are handled in their order, and each counts once, also when workers
// are killed or stopped and go on later: see docs/consumers.md. Any error that is not
// expected ends the program; let it be started again.

const fs = require('node:fs')
const { randomUUID } = require('node:crypto')
const { setTimeout: sleep } = require('node:timers/promises')
const Redis = require('ioredis')
const { Client } = require('pg')

const BATCH = 50 // entries in one transaction, at most
const BLOCK = 1000 // ms to wait for entries
const POLL = 20 // ms until the next look where no command waits for all entries
const READ_AGAIN = 3600000 // ms to go back in a stream that has lost entries: less than the endpoint's retention

class Lost extends Error {} // another worker has taken the partition

// Returns a client of a single Redis, or of a cluster. Both have the commands that we need.
function connect (url) {
  const [, scheme, login, hosts] = /^(rediss?)\+cluster:\/\/(.*@)?([^/?]+)/.exec(url) ?? []
  if (!hosts) return new Redis(url, { maxRetriesPerRequest: 0 })
  const { username, password } = new URL(`redis://${login ?? ''}host`)
  return new Redis.Cluster(hosts.split(',').map((host) => `${scheme}://${host}`), {
    clusterRetryStrategy: () => null,
    redisOptions: {
      username: decodeURIComponent(username) || undefined,
      password: decodeURIComponent(password) || undefined,
      tls: scheme === 'rediss' ? {} : undefined
    }
  })
}

// How far a partition is; the columns of its row in consumer_position.
class Position {
  constructor (row) {
    Object.assign(this, row)
    this.epoch = Number(row.epoch)
  }

  // Returns the entries behind the position, if the entry there is still the one that was
  // processed. If not, Redis has lost its newest entries, or the stream was trimmed. What
  // comes again may have smaller ids than the position, so the stream is to be read again
  // from before it.
  verify (entries) {
    if (this.message === null) return entries
    if (entries.length > 0 && entries[0].entry === this.entry && entries[0].id === this.message) return entries.slice(1)
    this.entry = `${Math.max(this.entry.split('-')[0] - READ_AGAIN, 0)}-0`
    this.message = null
    return null
  }
}

// The layouts that a stream has had: over how many partitions it was spread, and where each
// earlier one ends. The partition -1 is the stream itself: databases in which it has no
// partitions write to it, whatever others do.
class Layouts {
  constructor () {
    this.of = [] // by epoch: partitions, and the last entries of those before
    this.told = this.newest = 0 // in Redis, and that we know
  }

  // From the fields of the key in which the outbox tells them. What Redis has lost meanwhile still counts.
  learn (fields) {
    for (const [name, value] of Object.entries(fields)) {
      if (!name.startsWith('past:')) continue
      const [count, former, ...ends] = value.split(' ')
      this.add(name.slice(5), count, former, new Map(ends.map((end, i) => [i - 1, end])))
    }
    if (fields.epoch) {
      const ends = Object.entries(fields).filter(([name]) => name.startsWith('end'))
      this.add(fields.epoch, fields.partitions, fields.former, new Map(ends.map(([name, end]) => [Number(name.slice(4) || -1), end])))
    }
    this.told = Number(fields.epoch ?? 0)
    this.of.sort((one, other) => one.epoch - other.epoch)
    this.newest = this.of.at(-1)?.epoch ?? 0
  }

  add (epoch, count, former, ends) {
    const layout = { epoch: Number(epoch), count: Number(count), former: Number(former), ends }
    this.of = [...this.of.filter((other) => other.epoch !== layout.epoch), layout]
  }

  // The partitions of the layouts from this epoch on: the first, and the one behind the last. If
  // Redis has lost the newest layout, we have reached more than it tells.
  span (reachedOnce) {
    const reached = Math.min(reachedOnce, this.newest)
    const counts = this.of.filter(({ epoch }) => epoch >= reached).map(({ count }) => count)
    if (this.of.length > 0 && reached < this.of[0].epoch) counts.push(this.of[0].former) // before the first change
    return [-1, Math.max(0, ...counts)]
  }

  // The epoch of an entry behind the position.
  epochOf (position, entry) {
    let epoch = position.epoch
    for (const later of this.of) {
      if (later.epoch <= epoch) continue
      if (!isBehind(entry, later.ends.get(position.partition) ?? '-')) break
      epoch = later.epoch
    }
    return epoch
  }
}

// Whether an entry is behind the end of a stream, or there was no such stream.
function isBehind (entry, end) {
  if (end === '-') return true
  const [[ms, count], [endMs, endCount]] = [entry, end].map((id) => id.split('-').map(Number))
  return ms > endMs || (ms === endMs && count > endCount)
}

class Worker {
  constructor (conninfo, url, stream, group, name, lease = 10000, pause = 0) {
    Object.assign(this, { stream, group, name: `${name}:${randomUUID()}`, leaseTime: Number(lease), pause: Number(pause) })
    this.server = connect(url)
    this.server.defineCommand('lease', { numberOfKeys: 2, lua: fs.readFileSync('lease.lua', 'utf8') })
    // A worker that is stopped within a transaction must not hold its partition forever.
    this.database = new Client({ connectionString: conninfo, idle_in_transaction_session_timeout: this.leaseTime })
    this.database.on('error', () => {}) // a lost connection is told of by the next query too
    this.layouts = new Layouts()
    this.reached = 0 // all partitions have reached this epoch
    this.positions = new Map()
    this.size = 1 // entries in one transaction, so that it takes a third of a lease at most
    this.layoutKey = `outbox:partitions:${stream}`
    this.nextLease = 0
    this.stopping = false
  }

  async run () {
    await this.database.connect()
    await this.readLayouts()
    while (!this.stopping) {
      await this.lease()
      const known = this.layouts.newest
      for (const [position, entries] of await this.read()) {
        await this.lease()
        if (this.positions.get(position.partition) === position) await this.advance(position, entries, known)
      }
    }
    await this.callLease(0)
    await this.database.end()
    this.server.disconnect()
  }

  // Renews the lease in good time, and takes the partitions that are ours from now on.
  async lease () {
    if (performance.now() < this.nextLease) return
    this.nextLease = performance.now() + this.leaseTime / 3
    await this.learn(await this.server.hget(this.layoutKey, 'epoch'))
    const ours = new Set(await this.callLease(this.leaseTime))
    for (const partition of this.positions.keys()) {
      if (!ours.has(partition)) this.positions.delete(partition)
    }
    for (const partition of ours) {
      if (!this.positions.has(partition)) await this.take(partition)
    }
  }

  callLease (time) {
    const keys = ['workers', 'partitions'].map((what) => `{${this.group}:${this.stream}}:${what}`) // in one hash slot
    return this.server.lease(...keys, this.name, time, ...this.layouts.span(this.reached))
  }

  async learn (epoch) {
    if (Number(epoch) !== this.layouts.told) await this.readLayouts()
    if (this.reached < this.layouts.newest) await this.reach()
  }

  // Each partition of a new layout has a row before anything of that layout is processed.
  async readLayouts () {
    this.layouts.learn(await this.server.hgetall(this.layoutKey))
    await this.reach()
    await this.database.query(
      'INSERT INTO consumer_position (consumers, stream, partition, epoch) ' +
      'SELECT $1, $2, p, $3::bigint FROM generate_series($4::integer, $5::integer - 1) p ON CONFLICT DO NOTHING',
      [this.group, this.stream, this.reached, ...this.layouts.span(this.reached)])
  }

  // Finds out which epoch all partitions have reached, of those that are still to be read.
  async reach () {
    for (;;) {
      const { rows } = await this.database.query(
        'SELECT min(epoch) FROM consumer_position WHERE consumers = $1 AND stream = $2 AND partition >= $3 AND partition < $4',
        [this.group, this.stream, ...this.layouts.span(this.reached)])
      if (!(Number(rows[0].min) > this.reached)) break
      this.reached = Number(rows[0].min)
    }
  }

  // Raises the token. While the transaction of a predecessor is open, try again later.
  async take (partition) {
    const { rows } = await this.database.query(
      'UPDATE consumer_position SET token = token + 1 WHERE (consumers, stream, partition) IN ' +
      '(SELECT consumers, stream, partition FROM consumer_position ' +
      'WHERE consumers = $1 AND stream = $2 AND partition = $3 FOR UPDATE SKIP LOCKED) ' +
      'RETURNING partition, token, epoch, entry, message',
      [this.group, this.stream, partition])
    if (rows.length > 0) this.positions.set(partition, new Position(rows[0]))
  }

  // Returns partitions of ours and their entries, after waiting for some if there are none.
  // The epoch is read after the entries: so no entry is of a layout that we do not know.
  // A partition that has reached a layout waits until all others have.
  async read () {
    const positions = [...this.positions.values()].filter(({ epoch }) => Math.min(epoch, this.layouts.newest) <= this.reached)
    const answers = await Promise.all(positions.map((position) => this.server.xrange(this.keyOf(position), position.entry, '+', 'COUNT', BATCH + 1)))
    await this.learn(await this.server.hget(this.layoutKey, 'epoch'))
    const found = positions.map((position, i) => [position, position.verify(answers[i].map(readEntry))])
    if (found.every(([, entries]) => entries?.length === 0)) await this.wait(positions)
    return found.filter(([, entries]) => entries !== null)
  }

  keyOf ({ partition }) { return partition < 0 ? this.stream : `${this.stream}:${partition}` }

  // Waits for entries; in a cluster, where their streams are on several nodes, for a moment only.
  async wait (positions) {
    const block = Math.min(BLOCK, Math.floor(this.leaseTime / 3))
    if (!this.server.isCluster && positions.length > 0 && positions.length === this.positions.size) {
      const streams = positions.map((position) => this.keyOf(position))
      await this.server.xread('COUNT', 1, 'BLOCK', block, 'STREAMS', ...streams, ...positions.map(({ entry }) => entry))
    } else {
      await sleep(POLL)
    }
  }

  // Processes what belongs to the layout that the partition has reached, or reaches the next
  // one. The end of the stream is the end of a layout if a later one was known before it was read.
  async advance (position, entries, known) {
    const later = entries.findIndex(({ entry }) => this.layouts.epochOf(position, entry) > position.epoch)
    const batch = later < 0 ? entries : entries.slice(0, later)
    const epoch = later < 0 ? known : this.layouts.epochOf(position, entries[later].entry)
    try {
      if (batch.length > 0) await this.work(position, batch.slice(0, this.size))
      else if (epoch > position.epoch) await this.moving(position, async () => ({ epoch }))
    } catch (error) {
      if (!(error instanceof Lost)) throw error
      console.log('lost', position.partition)
      this.positions.delete(position.partition)
    }
  }

  async work (position, batch) {
    try {
      await this.process(position, batch)
    } catch (error) {
      if (!isPoison(error)) throw error
      if (error.constraint === 'outbox_record_claimed') return // processed meanwhile: the next try finds a duplicate
      if (batch.length === 1) return this.bury(position, batch[0], error)
      for (const entry of batch) await this.work(position, [entry])
    }
  }

  // Handles entries and moves the position, in one transaction. One statement says which are new.
  async process (position, batch) {
    const begin = performance.now()
    await this.moving(position, async () => {
      const { rows } = await this.database.query(
        'SELECT outbox_begin(id, endpoint => $1) AS is_new, outbox_commit() ' +
        'FROM unnest($2::text[]) WITH ORDINALITY t (id, n) ORDER BY n', [this.group, batch.map(({ id }) => id)])
      for (const [i, { fields }] of batch.entries()) {
        if (rows[i].is_new) await this.handle(fields)
      }
      return { entry: batch.at(-1).entry, message: batch.at(-1).id }
    })
    const took = (performance.now() - begin) / batch.length
    this.size = Math.max(1, Math.min(BATCH, Math.floor(this.leaseTime / 3 / took)))
  }

  // What the application does; all of it in the transaction.
  async handle ({ key, body }) {
    JSON.parse(body)
    if (this.pause > 0) await sleep(this.pause)
    await this.database.query('INSERT INTO handled (key, body, worker) VALUES ($1, $2, $3)', [key, body, this.name])
  }

  // Puts aside what cannot be processed; later messages of its key overtake it.
  async bury (position, { entry, id, fields }, error) {
    await this.moving(position, async () => {
      await this.database.query(
        'INSERT INTO dead_entry (consumers, stream, partition, entry, fields, error) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING',
        [this.group, this.stream, position.partition, entry, Buffer.from(JSON.stringify(fields)), String(error)])
      return { entry, message: id }
    })
  }

  // Runs work in a transaction in which nobody else can work on the partition, or take it;
  // moves the position to what it returns.
  async moving (position, work) {
    const place = [this.group, this.stream, position.partition]
    await this.database.query('BEGIN')
    try {
      const { rowCount } = await this.database.query(
        'SELECT FROM consumer_position WHERE consumers = $1 AND stream = $2 AND partition = $3 AND token = $4 FOR UPDATE',
        [...place, position.token])
      if (rowCount === 0) throw new Lost()
      const to = { ...position, ...await work() }
      await this.database.query(
        'UPDATE consumer_position SET entry = $4, message = $5, epoch = $6 WHERE consumers = $1 AND stream = $2 AND partition = $3',
        [...place, to.entry, to.message, to.epoch])
      await this.database.query('COMMIT')
      Object.assign(position, to)
    } catch (error) {
      await this.database.query('ROLLBACK')
      throw error
    }
  }
}

// An entry with its fields by name, and the id of its message.
function readEntry ([entry, flat]) {
  const fields = {}
  for (let i = 0; i < flat.length; i += 2) fields[flat[i]] = flat[i + 1]
  return { entry, fields, id: (fields.id ?? entry).replaceAll('\0', '\\0') }
}

// Whether no retry will help: what is no JSON, lacks something, or violates a constraint.
function isPoison (error) {
  return error instanceof SyntaxError || error instanceof TypeError || /^2[23]/.test(error.code)
}

const worker = new Worker(...process.argv.slice(2))
process.on('SIGTERM', () => { worker.stopping = true })
worker.run().catch((error) => {
  console.error(error)
  process.exit(1)
})
