// Before the first paint: the theme that the user chose, if any. Otherwise the system decides.
const store = {
  get(key) { try { return localStorage.getItem(key); } catch (_) { return null; } },
  set(key, value) { try { localStorage.setItem(key, value); } catch (_) { /* storage is switched off */ } },
};
document.documentElement.dataset.theme = store.get("redrive-theme") || "";
document.documentElement.classList.add("js");
