// What pages can do beyond plain HTML: live regions, relative times, the theme, keys, confirmations.
const base = (document.querySelector("a.brand")?.getAttribute("href") || "/").replace(/\/$/, "");
const region = document.querySelector("body:not([data-still]) [data-live]");
const [live, confirmation, help] = ["live", "confirm", "help"].map((id) => document.getElementById(id));

// ------------------------------------------------------------------------------------------------ live regions
let pending = 0, last = Date.now(), state = "connecting", isPaused = store.get("redrive-live") === "off";
function say() {
  if (!live) return;
  live.setAttribute("aria-pressed", String(!isPaused));
  live.textContent = isPaused ? "paused" : pending && isHeld() ? "changes waiting" : state;
}

// A page that changes under the eyes, the pointer or the hands of its reader would be worse than an old one.
function isHeld() {
  const selection = document.getSelection();
  return (selection && !selection.isCollapsed) || document.querySelector("dialog[open], [data-live] table:hover")
    || document.querySelector("main :active, [data-live] :is(input:checked, input:focus, select:focus)");
}
function refresh() {
  pending = isPaused || document.hidden || !isHeld() ? 0 : setTimeout(refresh, 500);
  say();
  if (isPaused || document.hidden || pending) return;
  last = Date.now();
  htmx.ajax("GET", location.href, { target: "#content", select: "#content", swap: "morph:outerHTML" }).then(say);
}
function changed() {
  if (!pending) pending = setTimeout(refresh, Math.max(0, 1000 - (Date.now() - last)));
}
// Details that the reader opened stay open.
if (window.Idiomorph) Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name) => name !== "open";

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
function readClock(text) {
  const at = /data-now="([^"]+)"/.exec(text);
  if (at) offset = Date.parse(at[1]) - Date.now();
}
function words(seconds) {
  const [size, name] = [[86400, "d"], [3600, "h"], [60, "m"]].find(([size]) => seconds >= size) || [1, "s"];
  return Math.floor(seconds / size) + " " + name;
}
function tick() {
  for (const each of document.querySelectorAll("time[data-relative]")) {
    const distance = (Date.parse(each.dateTime) - Date.now() - offset) / 1000;
    each.textContent = distance > 0 ? "in " + words(Math.ceil(distance)) : words(-distance) + " ago";
  }
}
readClock(document.getElementById("main").outerHTML.slice(0, 200)); tick();
document.body.addEventListener("htmx:afterRequest", ({ detail }) => readClock(detail.xhr.responseText));
document.body.addEventListener("htmx:afterSwap", tick);
document.body.addEventListener("htmx:beforeSwap", ({ detail }) => {
  // The reader may have opened a dialog while the answer was under way: the form that it asks about must stay.
  const isLate = isHeld();
  // The session has ended: the answer is the page for the login.
  const isOut = detail.shouldSwap && !detail.xhr.responseText.includes('id="content"');
  if (isLate) changed(); else if (isOut) location.reload();
  if (isLate || isOut) detail.shouldSwap = false;
});
setInterval(tick, 500);

// ------------------------------------------------------------------------------------------------ theme
function offer(name, act) {
  const button = document.getElementById(name);
  button?.addEventListener("click", act);
  button?.removeAttribute("hidden");
}
offer("keys", () => help.showModal());
offer("theme", () => {
  const { dataset } = document.documentElement, isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  dataset.theme = (dataset.theme ? dataset.theme === "dark" : isDark) ? "light" : "dark";
  store.set("redrive-theme", dataset.theme);
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
const places = { o: "/", j: "/jobs", q: "/queues", w: "/workers", s: "/schedules", a: "/audit" };
const letters = help.querySelector("input");
letters.checked = store.get("redrive-keys") !== "off";
letters.addEventListener("change", () => store.set("redrive-keys", letters.checked ? "on" : "off"));
let isGoing = false;
function step(by) {
  const rows = [...document.querySelectorAll("tbody th a")], at = rows.indexOf(document.activeElement);
  rows[Math.max(0, Math.min(rows.length - 1, at + by))]?.focus();
}
function press(action, question) {
  const button = document.querySelector(`main button[value=${action}]`);
  if (button) ask(button, button.dataset.confirm || question);
}
const keys = {
  j: () => step(1), k: () => step(-1), r: () => press("retry", "Run this job now?"), c: () => press("cancel"),
  p: () => live?.click(), "/": () => document.querySelector("input[type=search]")?.focus(), "?": () => help.showModal(),
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
  if (document.querySelector("dialog[open]") || !letters.checked) return;
  const go = isGoing && places[event.key];
  isGoing = event.key === "g";
  if (go) location.href = base + go;
  else if (Object.hasOwn(keys, event.key)) { event.preventDefault(); keys[event.key](); }
});
