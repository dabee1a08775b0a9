// graphile-worker with a task that adds its message to a stream: HOST DATABASE SOCKET [install]
//
// As its documentation advises for speed: a local queue, completions in batches, as many
// jobs at a time as make the pipeline to Redis worth while.
import { run, runMigrations, Logger } from "graphile-worker";
import { Redis } from "ioredis";

const [host, database, socket, install] = process.argv.slice(2);
const options = {
  preset: {
    worker: {
      connectionString: `postgres://postgres@/${database}?host=${encodeURIComponent(host)}`,
      concurrentJobs: 200,
      maxPoolSize: 10,
      pollInterval: 1000,
      localQueue: { size: 500 },
      completeJobBatchDelay: 0,
      failJobBatchDelay: 0,
    },
  },
  logger: new Logger(() => () => {}),
};

if (install) {
  await runMigrations(options);
} else {
  const redis = new Redis({ path: socket, enableAutoPipelining: true });
  const runner = await run({
    ...options,
    taskList: {
      publish: ({ dest, body }, { job }) => redis.xadd(dest, "*", "id", job.id, "body", body),
    },
  });
  await runner.promise;
  redis.disconnect();
}
