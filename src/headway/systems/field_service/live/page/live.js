// Keeps the board as the server sends it, and counts the time left down in between.
"use strict";

const board = document.getElementById("board");
const state = document.getElementById("state");
const door = document.getElementById("door");
const KEY = "headway-token";
let skew = 0;

function tick() {
  for (const one of document.querySelectorAll("[data-until]")) {
    const left = Number(one.dataset.until) - (Date.now() + skew);
    one.textContent = Math.max(0, Math.ceil(left / 1000)) + " s left";
  }
}

function show(message) {
  const said = JSON.parse(message.data);
  if (message.event === "away") {
    state.textContent = "the store does not answer";
    return;
  }
  skew = said.now - Date.now();
  // The server has escaped all that people wrote, and the page runs no script but this one.
  board.innerHTML = said.html;
  state.textContent = "live";
  tick();
}

function* messages(text) {
  for (const block of text.split("\n\n")) {
    const message = { event: "message", data: "" };
    for (const line of block.split("\n")) {
      if (line.startsWith("event: ")) message.event = line.slice(7);
      if (line.startsWith("data: ")) message.data += line.slice(6);
    }
    if (message.data) yield message;
  }
}

async function listen() {
  const token = sessionStorage.getItem(KEY);
  const headers = token ? { Authorization: "Bearer " + token } : {};
  const reply = await fetch("/field-service/live/events", { headers, cache: "no-store" });
  if (reply.status === 401 || reply.status === 403) {
    sessionStorage.removeItem(KEY);
    board.textContent = "";
    door.hidden = false;
    state.textContent = token ? "this token may not see it" : "not signed in";
    return false;
  }
  if (!reply.ok) throw new Error(reply.status);
  door.hidden = true;
  const decoder = new TextDecoder();
  const reader = reply.body.getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return true;
    text = (text + decoder.decode(value, { stream: true })).replaceAll("\r\n", "\n");
    const end = text.lastIndexOf("\n\n");
    if (end < 0) continue;
    for (const message of messages(text.slice(0, end))) show(message);
    text = text.slice(end + 2);
  }
}

async function run() {
  for (;;) {
    try {
      if (!(await listen())) return;
    } catch {
      state.textContent = "no connection; trying again";
    }
    await new Promise((go) => setTimeout(go, 2000));
  }
}

door.addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, document.getElementById("token").value);
  document.getElementById("token").value = "";
  run();
});
setInterval(tick, 500);
tick();
run();
