// Sorting, filtering, copying, and tooltips without delay. Without it the page shows the same.
(() => {
  "use strict";
  const LONG = 200; // probes that are all shown at once; of more, the first 100
  document.documentElement.classList.add("scripted");
  const text = (cell) => cell.dataset.value ?? cell.textContent.trim();
  const byNumber = (one, other) => Number(one) - Number(other) || one.localeCompare(other, "en", { numeric: true });

  function sort(title, direction) {
    const table = title.closest("table");
    const place = [...title.parentElement.children].indexOf(title);
    const sign = direction === "descending" ? -1 : 1;
    for (const other of title.parentElement.children) if (other.hasAttribute("aria-sort")) other.setAttribute("aria-sort", "none");
    title.setAttribute("aria-sort", direction);
    const keyed = [...table.tBodies[0].rows].map((row) => [text(row.cells[place]), row]);
    // What has no value stays below, whichever the direction.
    keyed.sort(([one], [other]) => (one === "–") - (other === "–") || sign * byNumber(one, other));
    table.tBodies[0].append(...keyed.map(([, row]) => row));
  }

  function filter() {
    const table = document.getElementById("probe-table");
    if (!table) return;
    const words = document.getElementById("probe-words").value.toLowerCase().split(/\s+/).filter(Boolean);
    const [outcome, purpose] = ["probe-outcome", "probe-purpose"].map((id) => document.getElementById(id).value);
    let count = 0;
    const rows = [...table.tBodies[0].rows];
    for (const row of rows) {
      const content = row.textContent.toLowerCase();
      row.hidden = !(
        (!outcome || row.dataset.outcome === outcome) &&
        (!purpose || row.dataset.purpose === purpose) &&
        words.every((word) => content.includes(word))
      );
      count += !row.hidden;
    }
    // Of a long list the first ones, as it is sorted, until all are asked for: what stands below can then be found.
    const isCut = rows.length > LONG && !table.dataset.whole && count === rows.length;
    table.classList.toggle("cut", isCut);
    const more = document.getElementById("probe-more");
    more.hidden = !isCut;
    more.textContent = `Show all ${rows.length} probes`;
    const told = `${count} of ${rows.length} probes`;
    const place = document.getElementById("probe-count");
    if (place.textContent !== told) place.textContent = told;
  }

  async function copy(button) {
    const source = button.parentElement.querySelector("pre");
    let done = true;
    try {
      await navigator.clipboard.writeText(source.textContent);
    } catch {
      // No permission, or no clipboard for a page from a plain address: the old way.
      getSelection().selectAllChildren(source);
      done = document.execCommand("copy");
      getSelection().removeAllRanges();
    }
    button.textContent = done ? "Copied" : "Press Ctrl-C";
    if (!done) getSelection().selectAllChildren(source);
    setTimeout(() => { button.textContent = "Copy"; }, 1600);
  }

  document.addEventListener("click", (event) => {
    const title = event.target.closest("th[aria-sort]");
    if (title && event.target.closest("button")) {
      sort(title, title.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending");
    }
    if (event.target.id === "probe-more") {
      document.getElementById("probe-table").dataset.whole = "yes";
      filter();
    }
    const button = event.target.closest(".copy button");
    if (button) copy(button);
  });
  document.addEventListener("input", (event) => { if (event.target.closest(".tools")) filter(); });

  // A page that is served exchanges its parts: what the reader had sorted and filtered is done again.
  document.addEventListener("autotune:replaced", (event) => {
    const titles = [...event.target.querySelectorAll("th")];
    (event.detail?.sorted ?? []).forEach((direction, place) => {
      if (titles[place] && (direction === "ascending" || direction === "descending")) sort(titles[place], direction);
    });
    filter();
  });

  const tip = Object.assign(document.createElement("div"), { id: "tip", hidden: true });
  tip.setAttribute("aria-hidden", "true");
  document.body.append(tip);
  document.addEventListener("pointerover", (event) => {
    const mark = event.target.closest?.("svg g");
    const title = mark?.querySelector(":scope > title");
    if (title) { // The browser's own tooltip would come late and lie over ours.
      mark.dataset.tip = title.textContent;
      title.remove();
    }
    tip.hidden = !mark?.dataset.tip;
    if (!tip.hidden) tip.textContent = mark.dataset.tip;
  });
  document.addEventListener("pointermove", (event) => {
    if (tip.hidden) return;
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${event.clientY + 18 + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 10 : event.clientY + 18}px`;
  });
  filter();
})();
