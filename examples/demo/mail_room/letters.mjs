// The handlers of ../../workers/worker.mjs in the mail room: letters by SMTP, without packages.

import { connect } from "node:net";
import { createInterface } from "node:readline";

// Nothing is written to this pipe; it is closed when the demo exits, however that happens.
process.stdin.on("end", () => process.exit(1)).resume();
process.stdin.unref();

async function send_email({ to, title, text }, job) {
  const reference = `<${job.id}@localhost>`;
  const socket = connect(Number(process.env.SMTP_PORT), process.env.SMTP_HOST);
  socket.setTimeout(20_000, () => socket.destroy(new Error("the mail server is silent")));
  const failed = new Promise((_, reject) => socket.once("error", reject));
  try {
    await Promise.race([converse(socket, to, title, text, reference), failed]);
  } finally {
    failed.catch(() => {});
    socket.destroy();
  }
  return reference;
}

async function converse(socket, to, title, text, reference) {
  const lines = createInterface({ input: socket })[Symbol.asyncIterator]();
  const expect = async (code) => {
    for (;;) {
      const { value, done } = await lines.next();
      if (done) throw new Error("the mail server hung up");
      if (!value.startsWith(code)) throw new Error(`the mail server said ${value}`);
      if (value[3] !== "-") return;
    }
  };
  const say = (line, code) => {
    socket.write(`${line}\r\n`);
    return expect(code);
  };
  const body = text.replace(/\r?\n/g, "\r\n").replace(/^\./gm, "..");
  await expect("220");
  await say("EHLO localhost", "250");
  await say("MAIL FROM:<boards@localhost>", "250");
  await say(`RCPT TO:<${to}>`, "250");
  await say("DATA", "354");
  await say(
    `From: boards@localhost\r\nTo: ${to}\r\nSubject: ${title}\r\nMessage-ID: ${reference}\r\n\r\n${body}\r\n.`,
    "250",
  );
  socket.write("QUIT\r\n");
}

export default { send_email };
