// BullMQ on Redis. Done jobs are removed; completing a job fetches the next one in the same call.

import { Queue, Worker } from "bullmq";
import { Redis } from "ioredis";

const CONCURRENCY = 200;
const OPTIONS = { removeOnComplete: true, removeOnFail: true };

function connect(url) {
  return new Redis(url, { maxRetriesPerRequest: null });
}

export async function prepare() {}

export async function produce(url) {
  const connection = connect(url);
  const queue = new Queue("bench", { connection });
  await queue.waitUntilReady();
  return {
    one: (number) => queue.add("noop", { number }, OPTIONS),
    many: (numbers) =>
      queue.addBulk(numbers.map((number) => ({ name: "noop", data: { number }, opts: OPTIONS }))),
    later: (numbers, dueAt) =>
      queue.addBulk(
        numbers.map((number) => ({
          name: "noop",
          data: { number },
          opts: { ...OPTIONS, delay: Math.max(0, dueAt - Date.now()) },
        })),
      ),
    close: async () => {
      await queue.close();
      connection.disconnect();
    },
  };
}

export async function consume(url, handler) {
  const worker = new Worker("bench", async (job) => handler(job.data.number), {
    connection: connect(url),
    concurrency: CONCURRENCY,
  });
  worker.on("error", (error) => console.error(error));
  await worker.waitUntilReady();
}
