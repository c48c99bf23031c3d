// What pages can do beyond plain HTML: live regions, relative times, the theme, keys, confirmations.
const { base } = document.body.dataset;
const region = document.querySelector("body:not([data-still]) #content[data-live]");
const [live, confirmation, help, main] = ["live", "confirm", "help", "main"].map((id) => document.getElementById(id));

// ------------------------------------------------------------------------------------------------ live regions
let pending = 0, last = Date.now(), state = "connecting", isPaused = store.get("redrive-live") === "off";
function say() {
  if (!live) return;
  live.setAttribute("aria-pressed", String(!isPaused));
  live.lastElementChild.textContent = isPaused ? "paused" : pending && isHeld() ? "changes waiting" : state;
}

// A page that changes under the eyes, the pointer or the hands of its reader would be worse than an old one.
function isHeld() {
  const selection = document.getSelection();
  return (selection && !selection.isCollapsed) || document.querySelector("dialog[open], .menu[open], #content tr:hover")
    || document.querySelector("main :active, [data-live] :is(input:checked, input:focus, select:focus)");
}
async function refresh() {
  pending = isPaused || document.hidden || !isHeld() ? 0 : setTimeout(refresh, 500);
  say();
  if (isPaused || document.hidden || pending) return;
  last = Date.now();
  const answer = await fetch(location.href, { headers: { "Redrive-Refresh": "1" } }).catch(() => null);
  if (answer) show(await answer.text());
  say();
}
function show(text) {
  const found = new DOMParser().parseFromString(text, "text/html");
  // The reader may have opened a dialog while the answer was under way: the form that it asks about must stay.
  if (isHeld()) { changed(); return; }
  // The session has ended: the answer is the page for the login.
  if (!found.getElementById("content")) { location.reload(); return; }
  for (const old of document.querySelectorAll("[data-live]")) {
    const fresh = found.getElementById(old.id);
    if (fresh) Idiomorph.morph(old, fresh, { callbacks: { beforeAttributeUpdated } });
  }
  readClock(found.getElementById("main"));
  tick();
}
// Details that the reader opened stay open.
const beforeAttributeUpdated = (name) => name !== "open";
function changed() {
  if (!pending) pending = setTimeout(refresh, Math.max(0, 1000 - (Date.now() - last)));
}

// Browsers open six connections to a server, for all tabs together. So one tab has the stream and passes on what comes.
// It shows each second that it is there, and a tab that hears nothing for three seconds opens a stream of its own.
const me = Math.random(), channel = new BroadcastChannel("redrive" + base);
let source = null, heard = 0;
function pass(what) { channel.postMessage({ what, me }); }
function receive(what) {
  if (what === "changed") changed(); else { state = what; say(); }
}
function leave() {
  if (source) { source.close(); source = null; pass("left"); }
}
function lead() {
  const both = (what) => { receive(what); pass(what); };
  source = new EventSource(base + "/live");
  source.addEventListener("changed", () => both("changed"));
  // What happened between the reading of the page and the first look of the stream is in no event.
  source.onopen = () => { both("live"); both("changed"); };
  source.onerror = () => both("reconnecting");
}
function beat() {
  if (!region || isPaused || document.hidden) { leave(); return; }
  // The browser gives up after an answer that is no stream; another stream is the next attempt.
  if (source && source.readyState === EventSource.CLOSED) { leave(); heard = Date.now(); }
  if (source) pass(state); else if (Date.now() - heard > 3000) lead();
}
channel.onmessage = ({ data }) => {
  if (isPaused || document.hidden) return;
  if (data.what === "hello") { if (source) pass(state); return; }
  if (data.what === "left") { heard = Date.now() - 3000 + 500 * Math.random(); setTimeout(beat, 600); return; }
  if (source && data.me < me) leave();
  if (!source) { heard = Date.now(); receive(data.what); }
};
if (live) live.hidden = !region;
if (region && live) {
  offer("live", () => {
    isPaused = !isPaused;
    store.set("redrive-live", isPaused ? "off" : "on");
    beat(); changed(); say();
  });
  document.addEventListener("visibilitychange", () => { beat(); changed(); });
  addEventListener("pagehide", leave);
  say(); pass("hello");
  setTimeout(beat, 200); setInterval(beat, 1000);
}

// -------------------------------------------------------------------------------------- how long ago, and until when
// The clock of the server counts: the browser's clock only measures what has passed since the page was read.
let offset = 0;
function readClock(page) { offset = Date.parse(page.dataset.now) - Date.now(); }
function words(seconds) {
  const [size, name] = [[86400, "d"], [3600, "h"], [60, "min"]].find(([size]) => seconds >= size) || [1, "s"];
  return Math.floor(seconds / size) + "\u00a0" + name;
}
function tick() {
  for (const each of document.querySelectorAll("time[data-relative]")) {
    const distance = (Date.parse(each.dateTime) - Date.now() - offset) / 1000;
    const text = distance > 0 ? "in " + words(Math.ceil(distance)) : words(-distance) + " ago";
    if (each.textContent !== text) each.textContent = text;
  }
}
if (main.dataset.now) { readClock(main); tick(); }
setInterval(tick, 500);

// ------------------------------------------------------------------------------------------------ theme
function offer(name, act) { document.getElementById(name)?.addEventListener("click", act); }
offer("keys", () => help.showModal());
const theme = document.getElementById("theme"), { dataset } = document.documentElement;
function nameTheme() { if (theme) theme.lastElementChild.textContent = dataset.theme || "system"; }
offer("theme", () => {
  dataset.theme = { "": "light", light: "dark", dark: "" }[dataset.theme];
  store.set("redrive-theme", dataset.theme);
  nameTheme();
});
nameTheme();

// ------------------------------------------------------------------------------------ the viewer's zone, menus, copies
const local = document.getElementById("local");
if (local) {
  local.value = Intl.DateTimeFormat().resolvedOptions().timeZone;
  local.textContent = `Local time (${local.value})`;
}
document.addEventListener("click", ({ target }) => {
  for (const each of document.querySelectorAll(".menu[open]")) if (!each.contains(target)) each.open = false;
  const text = target.closest("[data-copy]")?.parentElement.querySelector("code, pre, .last");
  if (text) navigator.clipboard?.writeText(text.textContent);
});

// ------------------------------------------------------------------------------------------------ forms and keys
function ask(button, question) {
  confirmation.querySelector("p").textContent = question;
  const form = button.form;
  confirmation.onclose = () => {
    if (confirmation.returnValue !== "yes") return;
    button.dataset.asked = "1";
    // A refresh may replace the form before it is sent, and the browser sends no form that is not in the document.
    if (button.form !== form) form.append(button);
    form.hidden = true; document.body.append(form); form.requestSubmit(button);
  };
  confirmation.returnValue = "";
  confirmation.showModal();
}
document.addEventListener("submit", (event) => {
  const { target, submitter } = event;
  const mustAsk = submitter?.dataset.confirm && !submitter.dataset.asked;
  // A double click sends a form once.
  if (mustAsk || (target.method === "post" && target.dataset.sent)) event.preventDefault();
  if (mustAsk) return ask(submitter, submitter.dataset.confirm);
  target.dataset.sent = "1";
  setTimeout(() => { delete target.dataset.sent; }, 3000);
});
const places = {
  o: "/", j: "/jobs", e: "/errors", r: "/runs", m: "/machines", q: "/queues", w: "/workers", s: "/schedules",
  a: "/audit",
};
const letters = help.querySelector("input");
letters.checked = store.get("redrive-keys") !== "off";
letters.addEventListener("change", () => store.set("redrive-keys", letters.checked ? "on" : "off"));
let isGoing = false;
function step(by) {
  const rows = [...document.querySelectorAll("tbody th a")], at = rows.indexOf(document.activeElement);
  rows[Math.max(0, Math.min(rows.length - 1, at + by))]?.focus();
}
function press(action, question) {
  const button = document.querySelector(`main form[method=post] button[value=${action}]`);
  if (button) ask(button, button.dataset.confirm || question);
}
const keys = {
  j: () => step(1), k: () => step(-1), r: () => press("retry", "Run this job now?"), c: () => press("cancel"),
  p: () => live?.click(), "/": () => document.querySelector("input[type=search]")?.focus(), "?": () => help.showModal(),
};
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") document.querySelector(".menu[open]")?.removeAttribute("open");
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
  if (document.querySelector("dialog[open]") || !letters.checked) return;
  const go = isGoing && places[event.key];
  isGoing = event.key === "g";
  if (go) location.href = base + go;
  else if (Object.hasOwn(keys, event.key)) { event.preventDefault(); keys[event.key](); }
});
