// Keeps this page like the server's: asks for it again, and exchanges the parts that differ, each with an id of its own.
// What the reader did to a part stays: sorting, filters, open details, scrolling, focus.
(() => {
  "use strict";
  const SECONDS = 2; // between two questions; one that nothing answers anew costs the server a look at file times
  const PARTS = "header[id], section[id], main > [id], footer[id]";
  const CONTROLS = "input, select", BOXES = "[tabindex], .scroll", FOCUSABLE = "a, button, summary, input, select, [tabindex]";
  const shown = `"${document.currentScript.dataset.tag}"`; // the version that came with this script
  let tag = null; // of the version that `known` holds
  let known = new Map(); // id of a part -> its source as the server sent it: scripts change what is in the document

  const outermost = (root) => [...root.querySelectorAll(PARTS)].filter((part) => !part.parentElement.closest(PARTS));
  const sources = (parts) => new Map(parts.map((part) => [part.id, part.outerHTML]));

  // Rows come, go and are sorted: what is in one is known by its first cell, anything else by its place among its like.
  function keyed(part, selector) {
    const places = new Map();
    return [...part.querySelectorAll(selector)].map((element) => {
      const row = element.closest("tbody tr");
      const group = row ? `row ${row.cells[0].textContent}` : "outside";
      places.set(group, (places.get(group) ?? -1) + 1);
      return [element.id || `${group}, ${places.get(group)}`, element];
    });
  }

  function remember(part) {
    const state = (selector, read) => new Map(keyed(part, selector).map(([key, element]) => [key, read(element)]));
    const focused = keyed(part, FOCUSABLE).find(([, element]) => element === document.activeElement);
    return {
      controls: state(CONTROLS, (control) => [control.value, control.checked]),
      open: state("details", (details) => details.open),
      scrolled: state(BOXES, (box) => [box.scrollLeft, box.scrollTop]),
      sorted: [...part.querySelectorAll("th")].map((title) => title.getAttribute("aria-sort")),
      focus: focused?.[0],
    };
  }

  function restore(part, state) {
    const each = (selector, states, write) => {
      for (const [key, element] of keyed(part, selector)) if (states.has(key)) write(element, states.get(key));
    };
    each(CONTROLS, state.controls, (control, [value, checked]) => Object.assign(control, { value, checked }));
    each("details", state.open, (details, open) => { details.open = open; });
    // Whoever sorts and filters listens to this, and does it again to the new rows.
    part.dispatchEvent(new CustomEvent("autotune:replaced", { bubbles: true, detail: { sorted: state.sorted } }));
    each(BOXES, state.scrolled, (box, [left, top]) => box.scrollTo(left, top));
    if (state.focus) keyed(part, FOCUSABLE).find(([key]) => key === state.focus)?.[1].focus({ preventScroll: true });
  }

  function exchange(old, fresh) {
    const state = remember(old);
    const part = document.importNode(fresh, true);
    old.replaceWith(part);
    tick();
    restore(part, state);
  }

  // The reader looks at something: that must not move when parts above it grow.
  function anchored(change) {
    const inView = () => outermost(document).find((part) => part.getBoundingClientRect().bottom > 0);
    const [id, top] = [inView()?.id, inView()?.getBoundingClientRect().top];
    change();
    const moved = id && document.getElementById(id)?.getBoundingClientRect().top - top;
    if (moved) window.scrollBy({ top: moved, behavior: "instant" });
  }

  function update(fresh) {
    const [here, parts] = [document, fresh].map(outermost);
    const after = sources(parts);
    const ids = (list) => list.map((part) => part.id).join();
    anchored(() => {
      document.title = fresh.title;
      if (ids(here) !== ids(parts)) { // parts came or went
        exchange(document.querySelector("main"), fresh.querySelector("main"));
      }
      for (const part of parts) {
        const old = document.getElementById(part.id);
        if (old && old.outerHTML !== part.outerHTML && known.get(part.id) !== after.get(part.id)) exchange(old, part);
      }
    });
    known = after;
  }

  function say(text) {
    let note = document.getElementById("autotune-live");
    if (!note) {
      note = Object.assign(document.createElement("p"), { id: "autotune-live", className: "soft" });
      note.setAttribute("role", "status");
      document.body.append(note);
    }
    if (note.textContent !== text) note.textContent = text;
  }

  async function ask() {
    const answer = await fetch(location.href, { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
    if (answer.status === 304) return say("");
    const text = await answer.text();
    if (!answer.ok) return say(text);
    // Its style has a nonce of its own, which does not hold here: the browser would complain, and this page has the style.
    const fresh = new DOMParser().parseFromString(text.replace(/<style[^]*?<\/style>/g, ""), "text/html");
    tag = answer.headers.get("ETag");
    if (!known.size && tag === shown) known = sources(outermost(fresh)); // the page as it is here, before any script
    else update(fresh);
    return say("");
  }

  async function live() {
    try {
      if (!document.hidden) await ask();
    } catch {
      say("The dashboard does not answer any more; what is shown is what was last known.");
    }
    setTimeout(live, SECONDS * 1000);
  }
  live();

  // Times that go on: the server tells when something began, and nothing more until the next event.
  function tick() {
    for (const place of document.querySelectorAll("[data-since]")) {
      const seconds = Math.max(0, (Date.now() - Date.parse(place.dataset.since)) / 1000);
      if (!Number.isFinite(seconds)) continue;
      if (place.localName === "progress") place.value = seconds;
      else place.textContent = `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, "0")}`;
    }
  }
  setInterval(tick, 1000);
  tick();
})();
