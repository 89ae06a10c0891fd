// Draws charts when they come into sight, and again when their numbers change.
"use strict";
(() => {
  const {busy, renew} = window.renewing;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const tags = new WeakMap(), widths = new WeakMap(), seen = new Set();

  async function draw(place) {
    const address = `${place.dataset.chart}?dark=${dark.matches ? 1 : 0}`;
    // the browser keeps the chart, and asks if it has changed
    const answer = await fetch(address, {headers: {Accept: "application/json"}, cache: "no-cache"});
    if (answer.status >= 500) throw new Error(`status ${answer.status}`);
    if (!answer.ok) return true; // nothing to draw now
    const tag = answer.headers.get("ETag");
    if (tag === tags.get(place)) return true;
    await window.drawChart(place, await answer.json(), dark.matches);
    widths.set(place, place.clientWidth);
    tags.set(place, tag);
    return true;
  }

  async function fill(part) {
    const here = part.querySelector(".table-here");
    if (!part.open) return true;
    if (busy(here)) return false;
    const answer = await fetch(part.dataset.table, {headers: {Accept: "text/html"}});
    if (answer.status >= 500) throw new Error(`status ${answer.status}`);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const table = page.getElementById("numbers");
    if (!table) return true;
    table.removeAttribute("id");
    here.tabIndex = 0; // so that keys scroll it
    here.setAttribute("role", "region");
    here.setAttribute("aria-label", part.querySelector("summary").textContent);
    const fresh = document.createElement("div");
    fresh.append(table);
    const top = here.scrollTop;
    const done = renew(here, fresh);
    here.scrollTop = top;
    return done;
  }

  // Charts and tables to be fetched; what fails, or is in use, waits for the page's next refresh.
  const due = new Set(), underway = new Set();
  async function work(one) {
    if (underway.has(one)) return;
    underway.add(one);
    one.ariaBusy = "true";
    let done = true;
    while (done && due.delete(one) && one.isConnected) { // again if more came meanwhile
      try { done = await (one.dataset.chart ? draw(one) : fill(one)); } catch { done = false; }
    }
    if (!done) due.add(one);
    one.ariaBusy = null;
    underway.delete(one);
  }
  function want(one) {
    due.add(one);
    work(one);
  }

  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting && !seen.has(entry.target)) { seen.add(entry.target); want(entry.target); }
    }
  }, {rootMargin: "300px"});
  const sizes = new ResizeObserver((entries) => { // of a chart that has got a neighbour, say
    const changed = entries.filter(({target}) => tags.has(target) && widths.get(target) !== target.clientWidth);
    for (const {target} of changed) widths.set(target, target.clientWidth);
    if (changed.length) window.dispatchEvent(new Event("resize")); // charts listen to it
  });
  function observe() {
    for (const place of document.querySelectorAll("[data-chart]")) {
      watch.observe(place);
      sizes.observe(place);
    }
  }
  observe();

  document.addEventListener("steadyarm:fresh", (event) => {
    for (const place of seen) {
      if (place.isConnected) continue;
      seen.delete(place);
      watch.unobserve(place);
      sizes.unobserve(place);
      window.removeChart(place);
    }
    observe();
    if (event.detail.changed) {
      for (const place of seen) due.add(place);
      for (const part of document.querySelectorAll("details[data-table][open]")) due.add(part);
    }
    for (const one of [...due]) work(one);
  });
  dark.addEventListener("change", () => { for (const place of seen) want(place); });
  document.addEventListener("toggle", (event) => {
    if (event.target.open && event.target.dataset.table) want(event.target);
  }, true);
})();
