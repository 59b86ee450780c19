// A queue for Node under measurement. Executes commands, lines of JSON on its standard input, and
// replies with a line each on its standard output. The protocol is that of producing.py and
// consuming.py in bench/systems.
//
//   node main.mjs produce MODULE
//   node main.mjs consume MODULE URL BOARD PLACE CLOCK     (CLOCK: none, monotonic or wall)

import { createInterface } from "node:readline";
import { closeSync, openSync, writeSync } from "node:fs";

const WARM = -1;
const CHUNK = 1_000;
const FEW = 100;
const LOOK_MS = 4;

// Libraries must not write to standard output, which is for replies.
console.log = console.error;

const [role, name, ...rest] = process.argv.slice(2);
const queue = await import(`./${name}.mjs`);
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

async function readLine() {
  const { value, done } = await lines.next();
  if (done) process.exit(1);
  return JSON.parse(value);
}

function say(value) {
  return new Promise((resolve) => process.stdout.write(`${JSON.stringify(value)}\n`, resolve));
}

function* chunks(count) {
  for (let at = 0; at < count; at += CHUNK) {
    yield Array.from({ length: Math.min(CHUNK, count - at) }, (_, index) => at + index);
  }
}

function perSecond(count, begin) {
  return (count / (performance.now() - begin)) * 1_000;
}

// Clocks that are comparable between processes, in ms.
const wallOffset = compareClocks();
const clocks = {
  monotonic: () => Number(process.hrtime.bigint()) / 1e6,
  wall: () => performance.now() + wallOffset,
};

// Date.now() is truncated to whole milliseconds, and the process may be interrupted between the two
// reads. Both make the difference too small, so the largest of many samples is the best.
function compareClocks() {
  let most = -Infinity;
  const end = performance.now() + 5;
  for (let now = 0; now < end; ) {
    const wall = Date.now();
    now = performance.now();
    most = Math.max(most, wall - now);
  }
  return most;
}

const verbs = {
  async one(producer, count) {
    for (let number = 0; number < FEW; number += 1) await producer.one(WARM);
    const begin = performance.now();
    for (let number = 0; number < count; number += 1) await producer.one(number);
    return perSecond(count, begin);
  },
  async many(producer, count) {
    const begin = performance.now();
    for (const numbers of chunks(count)) await producer.many(numbers);
    return perSecond(count, begin);
  },
  async later(producer, count, dueAt) {
    for (const numbers of chunks(count)) await producer.later(numbers, dueAt);
    return null;
  },
  async pace(producer, count, everyNs) {
    const sent = [];
    const begin = performance.now();
    for (let number = 0; number < count; number += 1) {
      const wait = begin + (number * everyNs) / 1e6 - performance.now();
      if (wait > 0) await new Promise((resolve) => setTimeout(resolve, wait));
      await producer.one(number);
      sent.push(clocks.monotonic());
    }
    return sent;
  },
  async warm(producer) {
    await producer.one(WARM);
    return null;
  },
};

async function produce() {
  for (;;) {
    const url = await readLine();
    if (url === null) return;
    await queue.prepare(url);
    const producer = await queue.produce(url);
    await say("open");
    for (;;) {
      const command = await readLine();
      if (command === null) break;
      const [verb, ...words] = command;
      await say(await verbs[verb](producer, ...words));
    }
    await producer.close();
    await say("closed");
  }
}

async function consume(url, board, place, clock) {
  const seen = [];
  let first = 0;
  let last = 0;
  const now = clocks[clock] ?? clocks.monotonic;
  const timed = clock !== "none";
  const handler = (number) => {
    last = now();
    if (!first) first = last;
    seen.push(timed ? [number, last] : number);
  };
  const file = openSync(board, "r+");
  const cell = Buffer.alloc(8);
  let written = 0;
  const timer = setInterval(() => {
    if (seen.length === written) return;
    written = seen.length;
    cell.writeBigInt64LE(BigInt(written));
    writeSync(file, cell, 0, 8, Number(place) * 8);
  }, LOOK_MS);
  await say("ready");
  await readLine();
  await queue.consume(url, handler);
  await readLine();
  clearInterval(timer);
  closeSync(file);
  await say([first, last, seen]);
}

await (role === "produce" ? produce() : consume(...rest));
process.exit(0);
