// Draws charts when they come into sight, and again when their numbers change.
"use strict";
(() => {
  const {busy, renew} = window.renewing;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const tags = new WeakMap(), columns = new WeakMap(), seen = new Set();
  const wide = (place) => place.clientWidth > 800 ? 1 : 0;

  async function draw(place) {
    columns.set(place, wide(place));
    const address = `${place.dataset.chart}?dark=${dark.matches ? 1 : 0}&wide=${columns.get(place)}`;
    const [Plotly, answer] = await Promise.all([ // the browser keeps the chart, and asks if it has changed
      window.loadPlotly(), fetch(address, {headers: {Accept: "application/json"}, cache: "no-cache"})]);
    if (answer.status >= 500) throw new Error(`status ${answer.status}`);
    if (!answer.ok) return true; // nothing to draw now
    const tag = answer.headers.get("ETag");
    if (tag === tags.get(place)) { // the same figure, in another size perhaps
      await Plotly.relayout(place, {autosize: true});
      return true;
    }
    const figure = await answer.json();
    if (!place.classList.contains("js-plotly-plot")) place.replaceChildren();
    const config = {displaylogo: false, displayModeBar: false, staticPlot: false,
      scrollZoom: false, doubleClick: "reset"};
    if (calm.matches) figure.layout.transition = {duration: 0};
    await Plotly.react(place, figure.data, figure.layout, config);
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
  const widths = new ResizeObserver((entries) => { // the window's, or of a chart that has got a neighbour
    for (const {target} of entries) {
      if (!target.clientWidth || !target.classList.contains("js-plotly-plot")) continue;
      if (wide(target) !== columns.get(target)) want(target); // panels beside or below each other
      else window.Plotly.relayout(target, {autosize: true});
    }
  });
  function observe() {
    for (const place of document.querySelectorAll("[data-chart]")) {
      watch.observe(place);
      widths.observe(place);
    }
  }
  observe();

  document.addEventListener("steadyarm:fresh", (event) => {
    for (const place of seen) {
      if (place.isConnected) continue;
      seen.delete(place);
      watch.unobserve(place);
      widths.unobserve(place);
      window.Plotly?.purge(place);
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
