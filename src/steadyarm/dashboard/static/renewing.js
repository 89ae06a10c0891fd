// Puts fresh content into a page in place. What somebody is using stays; all around it is renewed.
"use strict";
(() => {
  // Whether somebody has the focus in it, or has chosen text of it.
  function busy(part) {
    const active = document.activeElement, chosen = document.getSelection();
    return (active !== part && part.contains(active)) ||
      (!chosen.isCollapsed && chosen.containsNode(part, true));
  }

  const hasText = (part) =>
    [...part.childNodes].some((one) => one.nodeType === Node.TEXT_NODE && one.data.trim());

  // What is within `here` becomes as within `there`. True if nothing is left to be done later.
  function renew(here, there) {
    if (here.innerHTML === there.innerHTML) return true;
    if (!busy(here)) {
      here.replaceChildren(...document.importNode(there, true).childNodes);
      return true;
    }
    if (hasText(here) || hasText(there)) return false;
    const old = [...here.children], fresh = [...there.children];
    const keyed = old.some((one) => one.dataset.key !== undefined);
    const same = old.length === fresh.length &&
      old.every((one, i) => one.dataset.key === fresh[i].dataset.key);
    if (!same && !keyed) return false;
    const done = old.map((one, i) => {
      const other = keyed ? fresh.find((row) => row.dataset.key === one.dataset.key) : fresh[i];
      return other !== undefined && renewChild(one, other);
    });
    return same && done.every(Boolean);
  }

  function renewChild(here, there) {
    if (here.cloneNode(false).isEqualNode(there.cloneNode(false))) return renew(here, there);
    if (here === document.activeElement || busy(here)) return false;
    here.replaceWith(document.importNode(there, true));
    return true;
  }

  window.renewing = {busy, renew};
})();
