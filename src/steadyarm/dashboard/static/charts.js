// Draws charts when they come into sight, and again when their numbers change.
"use strict";
(() => {
  const plotly = document.currentScript.dataset.plotly;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const tags = new WeakMap(), seen = new Set();
  let library = null;

  function load() {
    library ??= new Promise((done, failed) => {
      const script = document.createElement("script");
      script.src = plotly;
      script.onload = () => done(window.Plotly);
      script.onerror = failed;
      document.head.append(script);
    });
    return library;
  }

  async function draw(place) {
    const headers = {Accept: "application/json"};
    const known = tags.get(place);
    if (known) headers["If-None-Match"] = known;
    const wide = place.clientWidth > 800 ? 1 : 0;
    const address = `${place.dataset.chart}?dark=${dark.matches ? 1 : 0}&wide=${wide}`;
    const [Plotly, answer] = await Promise.all([
      load(), fetch(address, {headers, cache: "no-store", credentials: "same-origin"})]);
    if (!answer.ok) return; // 304, or nothing to draw now
    tags.set(place, answer.headers.get("ETag"));
    const figure = await answer.json();
    if (!place.classList.contains("js-plotly-plot")) place.replaceChildren();
    const config = {responsive: true, displaylogo: false, displayModeBar: false, staticPlot: false,
      scrollZoom: false, doubleClick: "reset"};
    if (calm.matches) figure.layout.transition = {duration: 0};
    await Plotly.react(place, figure.data, figure.layout, config);
  }

  // One drawing of a place at a time; what came meanwhile is drawn once after it.
  const drawing = new WeakMap();
  async function again(place) {
    if (drawing.has(place)) { drawing.set(place, true); return; }
    do {
      drawing.set(place, false);
      try { await draw(place); } catch { /* the summary and the table are there */ }
    } while (drawing.get(place));
    drawing.delete(place);
  }

  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting && !seen.has(entry.target)) { seen.add(entry.target); again(entry.target); }
    }
  }, {rootMargin: "300px"});
  function look() {
    for (const place of document.querySelectorAll("[data-chart]")) watch.observe(place);
  }
  look();

  document.addEventListener("steadyarm:fresh", () => {
    look();
    for (const place of seen) again(place);
    for (const part of document.querySelectorAll("details[data-table][open]")) fill(part);
  });
  function anew() {
    for (const place of seen) { tags.delete(place); again(place); }
  }
  dark.addEventListener("change", anew);
  matchMedia("(min-width: 60rem)").addEventListener("change", anew); // panels beside or below each other

  async function fill(part) {
    const answer = await fetch(part.dataset.table, {headers: {Accept: "text/html"}, credentials: "same-origin"});
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const table = page.getElementById("numbers");
    const here = part.querySelector(".table-here");
    if (!table) return;
    table.removeAttribute("id");
    here.tabIndex = 0; // so that keys scroll it
    here.setAttribute("role", "region");
    here.setAttribute("aria-label", part.querySelector("summary").textContent);
    const top = here.scrollTop;
    here.replaceChildren(document.importNode(table, true));
    here.scrollTop = top;
  }
  document.addEventListener("toggle", (event) => {
    const part = event.target;
    if (part.open && part.dataset.table) fill(part).catch(() => { /* the link is there */ });
  }, true);
})();
