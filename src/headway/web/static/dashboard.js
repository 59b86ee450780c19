// Updates the fragments of a page, shows forms in a dialog, and times in the viewer's zone.
// Without it every page and every form still works.
"use strict";

const root = document.documentElement;
const THEME = "headway-theme";
try {
  const kept = localStorage.getItem(THEME);
  if (kept) root.dataset.theme = kept;
} catch {} // storage may be blocked

let skew = 0; // ms by which the store's clock is ahead of this one
const now = () => Date.now() + skew;
const SILENT_MS = 40000; // the server sends something every 15 s
const NO_CONNECTION = "no connection to the server; trying again";
let stream = null;
let receivedAt = 0; // when the stream last received something
const UNITS = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];

function span(ms) {
  let s = Math.max(0, Math.floor(ms / 1000));
  const parts = [];
  for (const [unit, size] of UNITS) {
    const n = Math.floor(s / size);
    s -= n * size;
    if (n || parts.length) parts.push(n ? n + unit : "");
    if (parts.length === 2) break;
  }
  return parts.filter(Boolean).join(" ") || "0s";
}

const clock = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const day = new Intl.DateTimeFormat([], { day: "numeric", month: "short" });
const date = new Intl.DateTimeFormat([], { day: "numeric", month: "short", year: "numeric" });

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function tick() {
  for (const one of document.querySelectorAll("time[data-age]")) setText(one, span(now() - one.dataset.age));
  for (const one of document.querySelectorAll("time[data-left]")) setText(one, span(one.dataset.left - now()));
  for (const one of document.querySelectorAll("time[data-when]")) {
    const at = new Date(Number(one.dataset.when));
    const today = new Date(now());
    const which = at.getFullYear() === today.getFullYear() ? day : date;
    setText(one, at.toDateString() === today.toDateString() ? clock.format(at) : which.format(at) + " " + clock.format(at));
  }
  // A connection may be lost unnoticed, as while a laptop sleeps.
  if (stream && Date.now() - receivedAt > SILENT_MS) {
    closeStream();
    showStatus(NO_CONNECTION, "away");
    openStream();
  }
}

// Replaces an element's content with another's, changing only what differs, so that focus,
// selection, scroll positions and open details are kept.
const keyOf = (node) => (node.nodeType === 1 ? node.id || node.dataset.key : undefined);
const alike = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);

function morph(to, from) {
  const keyed = new Map();
  for (const one of to.children) if (keyOf(one)) keyed.set(keyOf(one), one);
  let at = to.firstChild;
  for (const next of [...from.childNodes]) {
    const key = keyOf(next);
    let found = key ? keyed.get(key) : at && !keyOf(at) && alike(at, next) ? at : null;
    if (found && alike(found, next)) {
      if (found !== at) to.insertBefore(found, at);
      else at = at.nextSibling;
      if (next.nodeType === 1) morphOne(found, next);
      else if (found.data !== next.data) found.data = next.data;
    } else {
      to.insertBefore(next, at);
    }
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

function morphOne(to, from) {
  for (const { name } of [...to.attributes]) {
    if (!from.hasAttribute(name) && !(name === "open" && to.localName === "details")) to.removeAttribute(name);
  }
  for (const { name, value } of from.attributes) {
    if (to.getAttribute(name) !== value) to.setAttribute(name, value);
  }
  if (to.localName !== "time") morph(to, from);
}

const statusElement = () => document.getElementById("link");
function showStatus(text, kind) {
  const place = statusElement();
  if (!place) return;
  place.className = "link " + kind;
  setText(place, text);
}

function applyMessage(message) {
  const { now: at, parts } = JSON.parse(message.data);
  if (at) skew = at - Date.now();
  for (const [id, html] of Object.entries(parts)) {
    const place = document.getElementById(id);
    if (!place) continue;
    // Safe: the server escapes users' text, and the CSP allows no script except this file.
    const made = document.createElement(place.localName);
    made.innerHTML = html;
    morph(place, made);
  }
  showStatus("live", "live");
  tick();
}

function openStream() {
  if (stream || document.hidden || !("live" in document.body.dataset)) return;
  receivedAt = Date.now();
  stream = new EventSource(location.href);
  for (const kind of ["whole", "change", "away", "alive"]) stream.addEventListener(kind, () => (receivedAt = Date.now()));
  stream.addEventListener("whole", applyMessage);
  stream.addEventListener("change", applyMessage);
  stream.addEventListener("away", (message) => showStatus(JSON.parse(message.data).parts.text, "away"));
  stream.addEventListener("error", async () => {
    showStatus(NO_CONNECTION, "away");
    if (!stream || stream.readyState !== EventSource.CLOSED) return; // it reconnects by itself
    stream = null;
    let again = 2000;
    try {
      const reply = await fetch(location.href, { redirect: "manual", cache: "no-store" });
      if (reply.type === "opaqueredirect" || reply.status === 403) return location.reload();
      if (reply.status === 429) again = 10000;
    } catch {} // the server is unavailable
    setTimeout(openStream, again);
  });
}

function closeStream() {
  if (stream) stream.close();
  stream = null;
}

async function request(url, options) {
  const dialog = document.getElementById("ask");
  const reply = await fetch(url, { ...options, headers: { "X-Headway-Script": "1" } });
  const kind = reply.headers.get("content-type") || "";
  if (kind.startsWith("text/html")) {
    dialog.innerHTML = await reply.text();
    for (const one of dialog.querySelectorAll("[data-copy]")) one.hidden = !navigator.clipboard;
    if (!dialog.open) dialog.showModal();
    const first = dialog.querySelector("input:not([type=hidden]), textarea, select, button");
    if (first) first.focus();
    return;
  }
  const answer = await reply.json();
  if (answer.said !== undefined) {
    dialog.close();
    document.getElementById("said").textContent = answer.said;
  } else if (reply.status === 401) {
    location.reload();
  } else {
    showError([answer.wrong, answer.hint].filter(Boolean).join(": "));
  }
}

function showError(text) {
  const dialog = document.getElementById("ask");
  const place = document.createElement("p");
  place.className = "wrong";
  place.setAttribute("role", "alert");
  place.textContent = text;
  if (!dialog.open) {
    const box = document.createElement("div");
    const close = document.createElement("button");
    box.className = "ask";
    close.dataset.cancel = "";
    close.textContent = "Close";
    place.id = "ask-title";
    box.append(place, close);
    dialog.replaceChildren(box);
    dialog.showModal();
  } else {
    const form = dialog.querySelector("form");
    form.querySelector(".wrong")?.remove();
    form.querySelector(".acts").before(place);
  }
}

document.addEventListener("click", (event) => {
  const target = event.target.closest("a, button, dialog");
  if (!target || event.ctrlKey || event.metaKey || event.shiftKey) return;
  if (target.matches("[data-ask]")) {
    event.preventDefault();
    request(target.href).catch(() => location.assign(target.href));
  } else if (target.matches("dialog [data-cancel]")) {
    event.preventDefault();
    target.closest("dialog").close();
  } else if (target.matches("[data-copy]")) {
    navigator.clipboard.writeText(target.parentElement.querySelector("code").textContent);
    target.textContent = "Copied";
  } else if (target.matches("[data-theme-switch]")) {
    const dark = getComputedStyle(root).colorScheme === "dark" || (root.dataset.theme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
    root.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem(THEME, root.dataset.theme); } catch {}
    labelThemeSwitch();
  } else if (target.localName === "dialog" && event.target === target) {
    target.close();
  }
});

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (!form.matches("dialog form, form[data-ask]")) return;
  event.preventDefault();
  if (form.dataset.ask !== undefined) {
    const url = `${form.action}?${new URLSearchParams(new FormData(form))}`;
    request(url).catch(() => location.assign(url));
    return;
  }
  const button = form.querySelector(".acts button");
  button.disabled = true;
  request(form.action, { method: "POST", body: new URLSearchParams(new FormData(form)) })
    // Not sent again: only the reply may have been lost, and the action would be performed twice.
    .catch(() => showError("The reply was lost: check on this page whether it was done before you try again."))
    .finally(() => { button.disabled = false; });
});

function labelThemeSwitch() {
  const button = document.querySelector("[data-theme-switch]");
  if (!button) return;
  const dark = root.dataset.theme === "dark" || (!root.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  button.hidden = false;
  button.textContent = dark ? "Light" : "Dark";
  button.setAttribute("aria-label", (dark ? "Light" : "Dark") + " colours");
}

document.addEventListener("visibilitychange", () => (document.hidden ? closeStream() : openStream()));
addEventListener("pagehide", closeStream);
addEventListener("pageshow", openStream);
document.addEventListener("DOMContentLoaded", () => {
  if (document.body.dataset.now) skew = Number(document.body.dataset.now) - Date.now();
  for (const one of document.querySelectorAll("[data-copy]")) one.hidden = !navigator.clipboard;
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  for (const one of document.querySelectorAll("a[data-zone]")) {
    const to = new URL(one.href);
    to.searchParams.set("tz", one.dataset.zone === zone ? "UTC" : zone);
    one.href = to;
    setText(one, "in " + to.searchParams.get("tz"));
    one.hidden = one.dataset.zone === zone && zone === "UTC";
  }
  // On a narrow screen the menu scrolls sideways.
  document.querySelector(".menu [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  labelThemeSwitch();
  tick();
  setInterval(tick, 1000);
  openStream();
});
