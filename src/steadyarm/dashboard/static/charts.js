// Draws charts when they come into sight, and again when their numbers change.
"use strict";
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const tags = new WeakMap(), widths = new WeakMap(), seen = new Set();

  async function draw(place) {
    const address = `${place.dataset.chart}?dark=${dark.matches ? 1 : 0}`;
    // the browser keeps the chart, and asks if it has changed
    const answer = await fetch(address, {headers: {Accept: "application/json"}, cache: "no-cache"});
    if (answer.status >= 500) throw new Error(`status ${answer.status}`);
    if (!answer.ok) return; // nothing to draw now
    const tag = answer.headers.get("ETag");
    if (tag === tags.get(place)) return;
    await window.drawChart(place, await answer.json(), dark.matches);
    widths.set(place, place.clientWidth);
    tags.set(place, tag);
  }

  // Charts to be drawn; one that fails waits for the page's next refresh.
  const due = new Set(), underway = new Set();
  async function work(place) {
    if (underway.has(place)) return;
    underway.add(place);
    place.ariaBusy = "true";
    try {
      while (due.delete(place) && place.isConnected) await draw(place); // again if more came
    } catch {
      due.add(place);
    }
    place.ariaBusy = null;
    underway.delete(place);
  }
  function want(place) {
    due.add(place);
    work(place);
  }

  const watch = new IntersectionObserver((entries) => {
    for (const {isIntersecting, target} of entries) {
      if (isIntersecting && !seen.has(target)) { seen.add(target); want(target); }
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
    if (event.detail.changed) for (const place of seen) due.add(place);
    for (const place of [...due]) work(place);
  });
  dark.addEventListener("change", () => { for (const place of seen) want(place); });
})();
