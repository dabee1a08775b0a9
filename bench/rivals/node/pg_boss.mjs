// pg-boss, and a loop that adds its jobs to their streams: HOST DATABASE SOCKET [install]
//
// Jobs are fetched and completed by the batch, which is faster than its own work(): that
// waits half a second between two batches.
import { setTimeout } from "node:timers/promises";
import PgBoss from "pg-boss";
import { Redis } from "ioredis";

const [host, database, socket, install] = process.argv.slice(2);
const boss = new PgBoss({ host, database, user: "postgres", max: 4 });

boss.on("error", (error) => {
  console.error(error);
  process.exit(1);
});
await boss.start();
if (install) {
  await boss.createQueue("publish");
} else {
  const redis = new Redis({ path: socket });
  let stopped = false;
  process.on("SIGTERM", () => (stopped = true));
  while (!stopped) {
    if ((await moveBatch(redis)) < 500) await setTimeout(10);
  }
  redis.disconnect();
}
await boss.stop({ graceful: false });
process.exit(0);

// Returns how many messages were moved; they are complete when Redis has them.
async function moveBatch(redis) {
  const jobs = await boss.fetch("publish", { batchSize: 500 });
  if (jobs.length === 0) return 0;
  const pipeline = redis.pipeline();
  for (const { id, data } of jobs) pipeline.xadd(data.dest, "*", "id", id, "body", data.body);
  for (const [error] of await pipeline.exec()) {
    if (error) throw error;
  }
  await boss.complete("publish", jobs.map((job) => job.id));
  return jobs.length;
}
