// graphile-worker on PostgreSQL, with a local queue of 500 and completions in batches.

import { Logger, makeWorkerUtils, run } from "graphile-worker";

const QUEUE = 500;
const CONCURRENCY = 24;
const silent = new Logger(() => () => {});

export async function prepare(url) {
  const utils = await makeWorkerUtils({ connectionString: url, logger: silent });
  await utils.migrate();
  await utils.release();
}

export async function produce(url) {
  const utils = await makeWorkerUtils({ connectionString: url, logger: silent });
  const spec = (number, runAt) => ({ identifier: "noop", payload: { number }, runAt });
  return {
    one: (number) => utils.addJob("noop", { number }),
    many: (numbers) => utils.addJobs(numbers.map((number) => spec(number))),
    later: (numbers, dueAt) => {
      const runAt = new Date(dueAt);
      return utils.addJobs(numbers.map((number) => spec(number, runAt)));
    },
    close: () => utils.release(),
  };
}

export async function consume(url, handler) {
  await run({
    logger: silent,
    noHandleSignals: true,
    taskList: { noop: async (payload) => handler(payload.number) },
    preset: {
      worker: {
        connectionString: url,
        concurrentJobs: CONCURRENCY,
        maxPoolSize: 10,
        pollInterval: 1_000,
        localQueue: { size: QUEUE },
        completeJobBatchDelay: 0,
        failJobBatchDelay: 0,
      },
    },
  });
}
