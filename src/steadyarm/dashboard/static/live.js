// Keeps a page's numbers fresh: asks for the page again and puts in what has changed, in place.
"use strict";
(() => {
  const EVERY = 4000, SLOWEST = 60000;
  let tag = null, wait = EVERY, timer = 0;

  function busy(part) {
    // what somebody is using stays as it is until they leave it
    const active = document.activeElement;
    const chosen = document.getSelection();
    return (active && active !== part && part.contains(active)) ||
      (chosen && !chosen.isCollapsed && part.contains(chosen.anchorNode));
  }

  function put(fresh) {
    for (const part of document.querySelectorAll("[data-live]")) {
      const name = CSS.escape(part.dataset.live);
      const other = fresh.querySelector(`[data-live="${name}"]`);
      if (!other || busy(part) || part.innerHTML === other.innerHTML) continue;
      part.replaceChildren(...document.importNode(other, true).childNodes);
    }
  }

  // Sections may come, as when the first reward arrives; those that are there stay untouched.
  function arrange(fresh) {
    const here = document.querySelector("[data-sections]"), there = fresh.querySelector("[data-sections]");
    if (!here || !there || here.dataset.sections === there.dataset.sections) return;
    const known = new Map([...here.children].map((part) => [part.getAttribute("aria-labelledby"), part]));
    here.replaceChildren(...[...there.children].map((part) =>
      known.get(part.getAttribute("aria-labelledby")) ?? document.importNode(part, true)));
    here.dataset.sections = there.dataset.sections;
  }

  function say(text) {
    let note = document.querySelector(".stale");
    if (!text) { if (note) note.remove(); return; }
    if (!note) {
      note = document.createElement("p");
      note.className = "stale";
      note.setAttribute("role", "status");
      document.body.append(note);
    }
    note.textContent = text;
  }

  async function refresh() {
    try {
      const headers = {Accept: "text/html"};
      if (tag) headers["If-None-Match"] = tag;
      const answer = await fetch(location.href, {headers, cache: "no-store", credentials: "same-origin"});
      if (answer.status === 401 || (answer.redirected && answer.url.includes("/sign-in"))) {
        say("You are signed out. Load the page anew to sign in.");
        return; // for good
      }
      wait = EVERY;
      say("");
      if (answer.ok) {
        tag = answer.headers.get("ETag");
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
        arrange(fresh);
        put(fresh);
        document.dispatchEvent(new CustomEvent("steadyarm:fresh"));
      } else if (answer.status !== 304) {
        wait = Math.min(2 * wait, SLOWEST);
        say("The numbers may be old: the service does not answer as usual.");
      }
    } catch {
      wait = Math.min(2 * wait, SLOWEST);
      say("The numbers may be old: the service does not answer.");
    }
    later();
  }

  function later() {
    clearTimeout(timer);
    timer = setTimeout(() => document.hidden ? later() : refresh(), wait);
  }

  document.addEventListener("visibilitychange", () => { if (!document.hidden) later(); });
  later();
})();
