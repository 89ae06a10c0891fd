// Keeps a page's numbers fresh: asks for the page again and puts in what has changed, in place.
"use strict";
(() => {
  const EVERY = 4000, SLOWEST = 60000;
  const {busy, renew} = window.renewing;
  let shown = null, latest = null, wait = EVERY, timer = 0;

  // True if all of it is up to date; what somebody is using waits.
  function put(fresh) {
    const done = [...document.querySelectorAll("[data-live]")].map((part) => {
      const other = fresh.querySelector(`[data-live="${CSS.escape(part.dataset.live)}"]`);
      return other === null || renew(part, other);
    });
    return done.every(Boolean);
  }

  // Sections come and go, as when the first reward arrives; those that stay are not touched.
  function arrange(fresh) {
    const others = fresh.querySelectorAll("[data-sections]");
    const groups = [...document.querySelectorAll("[data-sections]")];
    return groups.map((here, i) => !others[i] || arrangeGroup(here, others[i])).every(Boolean);
  }

  function arrangeGroup(here, there) {
    if (here.dataset.sections === there.dataset.sections) return true;
    const named = (part) => part?.getAttribute("aria-labelledby");
    const wanted = new Set([...there.children].map(named));
    const gone = [...here.children].filter((part) => !wanted.has(named(part)));
    if (gone.some(busy)) return false;
    for (const part of gone) part.remove();
    let place = here.firstElementChild;
    for (const part of there.children) { // the order is always the same
      if (named(place) === named(part)) place = place.nextElementSibling;
      else here.insertBefore(document.importNode(part, true), place);
    }
    here.dataset.sections = there.dataset.sections;
    return true;
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

  function tell(now) {
    const detail = {changed: now !== latest};
    latest = now;
    document.dispatchEvent(new CustomEvent("steadyarm:fresh", {detail}));
  }

  async function refresh() {
    try {
      const answer = await fetch(location.href, {headers: {Accept: "text/html"}, cache: "no-cache"});
      if (answer.status === 401 || (answer.redirected && answer.url.includes("/sign-in"))) {
        say("You are signed out. Load the page anew to sign in.");
        return; // for good
      }
      if (answer.ok) {
        wait = EVERY;
        say("");
        const now = answer.headers.get("ETag");
        if (now !== shown) {
          const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
          const done = [arrange(fresh), put(fresh)].every(Boolean);
          shown = done ? now : null; // what was left out is put in later
        }
        tell(now);
      } else {
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
