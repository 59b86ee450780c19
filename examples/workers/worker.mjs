// A worker in Node 20 or later, without packages: runs several jobs at once and renews their leases.
//
//   HEADWAY_URL=http://127.0.0.1:8080 HEADWAY_TOKEN=hw_… LANES=main node worker.mjs [handlers.mjs]
//
// A handler takes (args, job) and returns its result. If it throws, the attempt fails.
// job.signal aborts when the job is cancelled or no longer belongs to this worker.

import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";

const url = process.env.HEADWAY_URL ?? "http://127.0.0.1:8080";
const lanes = process.env.LANES ?? "main";
const concurrency = Number(process.env.CONCURRENCY ?? 4);
const leaseMs = Number(process.env.LEASE_MS ?? 30_000);
const worker = `node-${hostname()}-${process.pid}-${randomUUID()}`;

const handlers = process.argv[2]
  ? (await import(pathToFileURL(resolve(process.argv[2])))).default
  : { greet: ({ name }) => ({ said: `Hello, ${name}` }) };

class Refused extends Error {}

async function call(path, body, { seconds = 30, signal } = {}) {
  const limit = AbortSignal.timeout(seconds * 1000);
  const reply = await fetch(`${url}/v1/${path}`, {
    method: "POST",
    headers: {
      "Content-Type": "application/json",
      ...(process.env.HEADWAY_TOKEN && { Authorization: `Bearer ${process.env.HEADWAY_TOKEN}` }),
    },
    body: JSON.stringify(body),
    signal: signal ? AbortSignal.any([signal, limit]) : limit,
  });
  const said = await reply.text();
  if (reply.ok) return JSON.parse(said);
  const error = `${path}: ${reply.status} ${said}`;
  // A refused call would be refused again; other errors are temporary, and every call may be repeated.
  throw reply.status < 500 && reply.status !== 429 ? new Refused(error) : new Error(error);
}

async function persist(path, body) {
  for (let pause = 100; ; pause = Math.min(pause * 2, 5000)) {
    try {
      return await call(path, body);
    } catch (error) {
      if (error instanceof Refused) throw error;
      console.error(String(error));
      await sleep(pause * (0.5 + Math.random() / 2));
    }
  }
}

function deferred() {
  let resolve;
  const promise = new Promise((done) => (resolve = done));
  return { promise, resolve };
}

let freed = deferred(); // resolved when a job has ended
const running = new Map(); // "job:run" -> { job, run, stop }
let request = 0; // the number of the last claim
let held = 0; // the number of the last claim whose reply was received

async function run(job) {
  const stop = new AbortController();
  const key = `${job.id}:${job.run}`;
  running.set(key, { job: job.id, run: job.run, stop });
  const outcome = { job: job.id, run: job.run };
  try {
    const handler = handlers[job.kind];
    if (!handler) throw new Error(`no handler for ${job.kind}`);
    const result = await handler(job.args, { ...job, signal: stop.signal });
    JSON.stringify(result); // throws for a value that is not JSON, which no report could contain
    outcome.result = result;
    outcome.outcome = "succeeded";
  } catch (error) {
    outcome.outcome = "failed";
    outcome.error = String(error?.stack ?? error);
  }
  try {
    const { verdicts } = await persist("settlements", { worker, outcomes: [outcome] });
    if (verdicts[0] === "lost") console.error(`${key}: no longer belonged to this worker`);
  } catch (error) {
    console.error(String(error)); // the job is taken back when the lease ends
  } finally {
    running.delete(key);
    freed.resolve();
  }
}

async function beat(more = {}) {
  const list = [...running.values()].map(({ job, run }) => ({ job, run }));
  const { lost, cancel } = await call("leases", {
    worker, running: list, request: held, lease: leaseMs, lanes: lanes.split(","), ...more,
  }, { seconds: leaseMs / 3000 });
  for (const { job, run } of [...lost, ...cancel]) running.get(`${job}:${run}`)?.stop.abort();
}

const beats = setInterval(() => beat().catch((error) => console.error(`beat: ${error}`)), leaseMs / 3);

const stopping = new AbortController();
for (const name of ["SIGTERM", "SIGINT"]) process.on(name, () => stopping.abort());

while (!stopping.signal.aborted) {
  const free = concurrency - running.size;
  if (free === 0) {
    await freed.promise;
    continue;
  }
  freed = deferred();
  try {
    request += 1;
    const { jobs } = await call("claims", {
      worker, lanes, request, max: free, lease: leaseMs, wait: "25s",
    }, { seconds: 40, signal: stopping.signal });
    for (const job of jobs) run(job);
    held = request;
  } catch (error) {
    if (stopping.signal.aborted) break;
    console.error(String(error));
    if (error instanceof Refused) {
      process.exitCode = 1;
      break;
    }
    await sleep(2000, undefined, { signal: stopping.signal }).catch(() => {});
  }
}

while (running.size) {
  freed = deferred();
  if (running.size) await freed.promise;
}
clearInterval(beats);
await beat({ leaving: true }).catch(() => {}); // jobs claimed in the meantime are handed back
