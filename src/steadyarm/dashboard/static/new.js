// The form for a new experiment: shows what matters, previews the file, plans the budget.
"use strict";

(() => {
  const form = document.getElementById("new");
  const planner = document.getElementById("planner");
  const csrf = document.querySelector("meta[name=csrf]").content;
  const byId = (id) => document.getElementById(id);
  const WAIT = 400; // milliseconds after the last key

  const send = async (address, body, signal) => {
    const headers = { Accept: "application/json", "x-csrf-token": csrf };
    let answer;
    try {
      answer = await fetch(address, { method: "POST", body, signal, headers });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Error("The service does not answer. Try again.");
    }
    let result = {};
    try {
      result = await answer.json();
    } catch {
      // not JSON: the status has to do
    }
    if (answer.status === 401) {
      throw new Error("You are signed out. Sign in on the overview in another tab.");
    }
    if (!answer.ok && !result.errors) {
      throw new Error(result.detail || `The service answered with status ${answer.status}.`);
    }
    return result;
  };

  // Errors at their fields

  const showError = (key, text) => {
    const place = byId(`e-${key}`);
    if (place === null) return;
    place.textContent = text ? `Error: ${text}` : "";
    place.hidden = !text;
    const field = byId(`f-${key}`);
    if (field === null) return;
    const inputs =
      field.tagName === "FIELDSET"
        ? field.querySelectorAll(`input[name="${field.hasAttribute("data-metric") ? "metric_name" : key}"]`)
        : [field];
    for (const input of inputs) {
      if (text) input.setAttribute("aria-invalid", "true");
      else input.removeAttribute("aria-invalid");
    }
  };

  const keyOf = (input) =>
    input.closest("[data-metric]")?.id.slice(2) ?? input.name; // metric-2

  // What does not matter for the present choices is hidden

  const metrics = () => form.querySelectorAll("[data-metric]");

  const showWhatMatters = () => {
    for (const part of document.querySelectorAll("[data-for]")) {
      const name = part.dataset.for;
      const chosen = document.querySelector(
        `input[name="${name}"]:checked, select[name="${name}"]`
      );
      part.hidden = chosen !== null && !part.dataset.values.split(" ").includes(chosen.value);
    }
    for (const part of document.querySelectorAll("[data-filled]")) {
      const field = form.elements[part.dataset.filled];
      part.hidden = field === undefined || field.value.trim() === "";
    }
    for (const metric of metrics()) {
      const role = metric.querySelector("select[name=metric_role]");
      const margin = metric.querySelector("[data-margin]");
      if (margin !== null) margin.hidden = role.value !== "guardrail";
    }
  };

  // The table of metrics

  const addMetric = () => {
    const number = metrics().length;
    const metric = blank.cloneNode(true);
    for (const element of [metric, ...metric.querySelectorAll("*")]) {
      for (const name of ["id", "for", "aria-describedby", "data-error"]) {
        const value = element.getAttribute(name);
        if (value !== null) element.setAttribute(name, value.replace(/-\d+$/, `-${number}`));
      }
    }
    metric.querySelector("legend").textContent = `Metric ${number + 1}`;
    byId("metrics").append(metric);
    updateMetrics();
    metric.querySelector("input").focus();
  };

  const removeMetric = () => {
    const all = metrics();
    if (all.length > 1) all[all.length - 1].remove();
    updateMetrics();
    changed();
  };

  const updateMetrics = () => {
    byId("remove-metric").disabled = metrics().length < 2;
    showWhatMatters();
  };

  // The same as a file

  const touched = new Set(); // fields that were filled in and left
  const edited = new Set(); // fields that are not as they came
  const found = new Set(); // fields whose errors a preview finds, too
  let timer = null;
  let underway = null;

  const list = (element, texts, tag) => {
    element.replaceChildren(
      ...texts.map((text) => {
        const child = document.createElement(tag);
        child.textContent = text;
        return child;
      })
    );
  };

  // The control is one of the variants; the choice stays while its variant does.
  const offer = (names) => {
    const select = byId("f-control");
    const known = [...select.options].slice(1).map((option) => option.value);
    if (known.length === names.length && known.every((name, i) => name === names[i])) return;
    const chosen = select.value;
    select.replaceChildren(select.options[0], ...names.map((name) => new Option(name, name)));
    select.value = names.includes(chosen) ? chosen : "";
    if (select.value !== chosen) changed();
  };

  const showPreview = (result) => {
    for (const key of touched) showError(key, result.errors[key] || "");
    for (const key of Object.keys(result.errors)) found.add(key);
    for (const shown of form.querySelectorAll("[data-error]:not([hidden])")) {
      const key = shown.dataset.error; // a name that is taken is beyond the preview
      if (!result.errors[key] && (edited.has(key) || found.has(key))) showError(key, "");
    }
    for (const line of document.querySelectorAll("[data-summary]")) {
      const key = line.dataset.summary;
      if (!result.errors[key] && (edited.has(key) || found.has(key))) line.remove();
    }
    if (document.querySelector("[data-summary]") === null) byId("errors")?.remove();
    byId("count").textContent = result.variants
      ? `${result.variants.toLocaleString("en")} variant${result.variants === 1 ? "" : "s"}.`
      : "";
    byId("duration").textContent = result.duration;
    if (result.names.length) offer(result.names);
    list(byId("cautions"), result.cautions.map((text) => `Caution: ${text}`), "li");
    byId("cautions").hidden = result.cautions.length === 0;
    byId("file-empty").textContent =
      result.errors.form || "Complete the form to see them.";
    byId("file-empty").hidden = result.toml !== null;
    byId("file-full").hidden = result.toml === null;
    for (const id of ["toml", "python", "command"]) byId(id).textContent = result[id] || "";
    for (const id of ["toml", "python"]) byId(`copied-${id}`).textContent = "";
  };

  const preview = async () => {
    if (underway !== null) underway.abort();
    underway = new AbortController();
    try {
      const body = new URLSearchParams(new FormData(form));
      showPreview(await send(form.dataset.preview, body, underway.signal));
    } catch (error) {
      if (error.name === "AbortError") return;
      byId("file-empty").textContent = error.message;
      byId("file-empty").hidden = false;
      byId("file-full").hidden = true;
    }
  };

  const changed = () => {
    clearTimeout(timer);
    timer = setTimeout(preview, WAIT);
  };

  const copy = async (id) => {
    try {
      await navigator.clipboard.writeText(byId(id).textContent);
      byId(`copied-${id}`).textContent = "Copied.";
    } catch {
      window.getSelection().selectAllChildren(byId(id));
      byId(`copied-${id}`).textContent = "Selected. Copy it with your keyboard.";
    }
  };

  // The planner

  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  let plan = null;

  const draw = async () => {
    if (plan === null) return;
    const figure = plan.figures[dark.matches ? "dark" : "light"];
    await window.drawChart(byId("plan-chart"), figure, dark.matches);
  };

  // What the form can take over.
  const showUses = (result) => {
    const uses = result.uses.map(({ budget, why, looks }) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = `Use ${budget.toLocaleString("en")} visitors, ${why}`;
      button.addEventListener("click", () => usePlan(budget, looks));
      return button;
    });
    byId("plan-uses").replaceChildren(...uses);
  };

  const showPlan = async (result) => {
    plan = result;
    byId("plan-caption").textContent = result.summary;
    byId("plan-note").textContent = result.note;
    list(byId("plan-verdict"), result.verdict, "p");
    showUses(result);
    byId("plan-answer").hidden = false;
    byId("plan-answer").focus();
    try {
      await draw();
    } catch {
      byId("plan-status").textContent = "The chart cannot be drawn.";
    }
  };

  const planErrors = (errors) => {
    for (const shown of planner.querySelectorAll("[data-error]")) {
      showError(shown.dataset.error, errors[shown.dataset.error] || "");
    }
    const others = Object.entries(errors).filter(([key]) => !key.startsWith("plan"));
    for (const [key, text] of others) {
      touched.add(key);
      showError(key, text);
    }
    return others.length ? `Complete the form first. ${others[0][1]}` : "";
  };

  const makePlan = async () => {
    const button = byId("plan-button");
    const status = byId("plan-status");
    if (button.disabled) return;
    button.disabled = true;
    status.textContent = "Simulating…";
    const body = new URLSearchParams(new FormData(form));
    for (const [key, value] of new FormData(planner)) body.append(key, value);
    try {
      const result = await send(planner.getAttribute("action"), body);
      status.textContent = planErrors(result.errors || {});
      if (result.errors) return;
      status.textContent = "The plan is ready.";
      await showPlan(result);
    } catch (error) {
      status.textContent = error.message;
    } finally {
      button.disabled = false;
    }
  };

  const choose = (name, value) => {
    const field = form.elements[name];
    if (field === undefined) return;
    if (field.tagName === "SELECT" && ![...field.options].some((option) => option.value === value)) return;
    field.value = value;
    touched.add(name);
  };

  const usePlan = (budget, looks) => {
    choose("budget", String(budget));
    if (looks) {
      choose("stop", "sure");
      choose("looks", looks);
    }
    showWhatMatters();
    changed();
    byId("f-budget").focus();
  };

  // Begin

  for (const element of document.querySelectorAll("[data-script]")) element.hidden = false;
  const blank = metrics()[metrics().length - 1];
  for (let i = 0; i < 2; i++) metrics()[metrics().length - 1].remove();
  updateMetrics();
  for (const input of form.elements) {
    // typed before this script ran
    if (input.name && "defaultValue" in input && input.value !== input.defaultValue) edited.add(keyOf(input));
  }
  form.addEventListener("input", (event) => {
    edited.add(keyOf(event.target));
    showWhatMatters();
    changed();
  });
  form.addEventListener("change", (event) => {
    touched.add(keyOf(event.target));
    showWhatMatters();
    changed();
  });
  planner.addEventListener("change", showWhatMatters);
  planner.addEventListener("submit", (event) => {
    event.preventDefault();
    makePlan();
  });
  byId("add-metric").addEventListener("click", addMetric);
  byId("remove-metric").addEventListener("click", removeMetric);
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", () => copy(button.dataset.copy));
  }
  dark.addEventListener("change", () => draw().catch(() => {}));
  const errors = byId("errors");
  if (errors !== null) errors.focus();
  preview();
})();
