// pg-boss on PostgreSQL, in batches of 1,000. It polls twice a second, its minimum interval, and is
// also woken by NOTIFY; after a full batch it fetches the next one at once.

import { PgBoss } from "pg-boss";

const BATCH = 1_000;

async function open(url, options) {
  const boss = new PgBoss({ connectionString: url, schedule: false, ...options });
  boss.on("error", (error) => console.error(error));
  await boss.start();
  return boss;
}

export async function prepare(url) {
  const boss = await open(url, { supervise: false });
  await boss.createQueue("bench", { notify: true });
  await boss.stop({ graceful: false });
}

export async function produce(url) {
  const boss = await open(url, { supervise: false });
  return {
    one: (number) => boss.send("bench", { number }),
    many: (numbers) => boss.insert("bench", numbers.map((number) => ({ data: { number } }))),
    later: (numbers, dueAt) => {
      const startAfter = new Date(dueAt).toISOString();
      return boss.insert("bench", numbers.map((number) => ({ data: { number }, startAfter })));
    },
    close: () => boss.stop({ graceful: false }),
  };
}

export async function consume(url, handler) {
  const boss = await open(url, { useListenNotify: true });
  await boss.work(
    "bench",
    {
      batchSize: BATCH,
      pollingIntervalSeconds: 0.5,
      notifyPollingIntervalSeconds: 0.5,
      burstWhenBatchFull: true,
    },
    async (jobs) => {
      for (const job of jobs) handler(job.data.number);
    },
  );
}
