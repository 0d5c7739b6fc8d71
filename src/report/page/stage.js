// SPDX-License-Identifier: Apache-2.0
// The timeline of a parameter: steps to play, and what every rank holds after each.

const range = (elements) => `[${elements[0]}, ${elements[1]})`;
const words = { "~": "stale: another rank owns it", "*": "handed to the optimizer of this cell's rank", "✗": "wrong" };

/** The states of a timeline: after each step, what every rank holds of every range. */
const states = (timeline) => {
  const buffers = {};
  return timeline.steps.map((step) => {
    const held = new Map(buffers[step.buffer] || []);
    const changed = new Set();
    for (const [rank, part, formula, marks] of step.cells) {
      held.set(`${timeline.ranks[rank]}/${part}`, { formula: timeline.formulas[formula], marks });
      changed.add(timeline.ranks[rank]);
    }
    buffers[step.buffer] = held;
    return { held, changed };
  });
};

const title = (step, several) =>
  `after ${step.step}` + (several && step.micro_batch !== null ? `, micro-batch ${step.micro_batch}` : "") +
  (step.buffer === "grad" ? "" : ` (buffer ${step.buffer})`);
const short = (step, several) => step.step + (several && step.micro_batch !== null ? `[${step.micro_batch}]` : "");

class Stage {
  constructor(section, data) {
    this.section = section;
    this.data = data;
    this.timer = null;
    this.blamed = new Set((data.blame || []).map((blame) => blame.step));
    section.hidden = false;
    section.append(make("h3", {}, "Step by step"));
    if (data.timelines_at) {
      section.append(make("p", { class: "stand-in" }, "The ranks of a large layout are not replayed one by one. This is the same file at ",
        make("strong", {}, data.timelines_at), ", with the same outcome."));
    }
    this.choice = make("select", { onchange: () => this.choose(Number(this.choice.value)) },
      ...data.timelines.map((timeline, index) => make("option", { value: index }, timeline.parameter)));
    const several = data.timelines.length > 1;
    this.name = make("p", { class: several ? "paper" : null });
    if (several) section.append(make("div", { class: "choose" }, make("label", {}, "Parameter ", this.choice)));
    section.append(this.name);
    this.back = make("button", { type: "button", "aria-label": "Step back", onclick: () => this.move(-1) }, "‹");
    this.forth = make("button", { type: "button", "aria-label": "Step forth", onclick: () => this.move(1) }, "›");
    this.button = make("button", { type: "button", class: "play", onclick: () => this.play() }, "▶ Play");
    this.slider = make("input", { type: "range", min: 0, step: 1, "aria-label": "Step of the schedule",
      oninput: () => { this.stop(); this.show(Number(this.slider.value)); } });
    this.chips = make("ol", { class: "chips", "aria-label": "Steps" });
    this.now = make("p", { class: "now" });
    this.board = make("div", { class: "board", tabindex: "0", role: "group", "aria-label": "What the ranks hold" });
    this.notes = make("p", { class: "legend" });
    this.live = make("p", { class: "sr", "aria-live": "polite" });
    section.append(make("div", { class: "player", role: "group", "aria-label": "Player" },
      this.button, this.back, this.slider, this.forth), this.chips, this.now, this.board, this.notes, this.live);
    // At once, without a click before: unless the focus is on what has a use of its own for these keys.
    document.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      const focus = document.activeElement;
      const scrolls = focus === this.board && this.board.scrollWidth > this.board.clientWidth;
      const free = focus === this.board || focus === document.body || focus?.tagName === "H2";
      if (!by || scrolls || !free || !this.board.checkVisibility()) return;
      if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      this.stop();
      this.move(by);
    });
    this.board.addEventListener("mouseover", (event) => {
      const cell = event.target.closest("td[data-rank]");
      this.peers(cell ? Number(cell.dataset.rank) : -1);
    });
    new ResizeObserver(() => this.arrows()).observe(this.board);
  }

  choose(index, name, micro) {
    this.stop();
    this.timeline = this.data.timelines[index];
    this.choice.value = index;
    this.name.replaceChildren(make("code", {}, this.timeline.parameter));
    this.states = states(this.timeline);
    const steps = this.timeline.steps;
    this.several = steps.some((step) => step.micro_batch > 0);
    this.slider.max = steps.length - 1;
    this.chips.replaceChildren(...steps.map((step, at) => make("li", {}, make("button", {
      type: "button", class: this.blamed.has(step.step) ? "fault" : null,
      onclick: () => { this.stop(); this.show(at); },
    }, (this.blamed.has(step.step) ? "✗ " : "") + short(step, this.several)))));
    let at = steps.findLastIndex((step) => step.step === name && (micro === null || step.micro_batch === micro));
    if (at < 0) at = steps.findLastIndex((step) => this.blamed.has(step.step) && step.changed);
    if (at < 0) at = Math.max(0, steps.findLastIndex((step) => step.changed));
    this.show(at, true);
  }

  show(at, quiet = false) {
    const step = this.timeline.steps[at];
    this.at = at;
    this.slider.value = at;
    this.slider.setAttribute("aria-valuetext", `${title(step, this.several)}, ${at + 1} of ${this.timeline.steps.length}`);
    this.back.disabled = at === 0;
    this.forth.disabled = at === this.timeline.steps.length - 1;
    [...this.chips.querySelectorAll("button")].forEach((chip, index) => {
      if (index === at) chip.setAttribute("aria-current", "step");
      else chip.removeAttribute("aria-current");
    });
    const groups = step.groups.length ? ` · ${step.op.replace("_", "-")} among ` +
      step.groups.slice(0, 4).map((group) => `{${group.join(", ")}}`).join(", ") + (step.groups.length > 4 ? ", …" : "")
      : ` · ${step.op.replace("_", "-")} on each rank`;
    this.now.replaceChildren(make("strong", {}, title(step, this.several)), make("small", {}, groups + (step.changed ? "" : " · unchanged")));
    this.draw(step);
    if (quiet) return;
    this.live.textContent = `${title(step, this.several)}: ` + [...this.board.querySelectorAll("td[data-rank]")].slice(0, 16)
      .map((cell) => cell.getAttribute("aria-label")).join("; ");
    this.remember();
  }

  remember() {
    const step = this.timeline.steps[this.at];
    const parts = { file: this.data.file };
    if (this.data.timelines.length > 1) parts.parameter = this.timeline.parameter;
    parts.step = short(step, this.several);
    write(parts);
  }

  draw(step) {
    const { held, changed } = this.states[this.at];
    const tables = this.timeline.blocks.map((block) => make("table", {},
      make("thead", {}, make("tr", {}, make("th", { scope: "col" }, block.title || ""),
        ...this.timeline.columns.map((column) => make("th", { scope: "col" }, column)))),
      make("tbody", {}, ...this.timeline.rows.map((row, index) => make("tr", {}, make("th", { scope: "row" }, row),
        ...block.ranks[index].map((rank) => this.cell(rank, held, changed.has(rank))))))));
    this.svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    this.svg.setAttribute("aria-hidden", "true");
    this.board.replaceChildren(make("div", {}, ...tables), this.reference(), this.svg);
    this.legend(held);
    this.arrows();
    return step;
  }

  /** A slice of a buffer as a bar, and what it holds. */
  segment(bar, part, formula, kind) {
    const elements = this.timeline.ranges[part];
    const segment = make("span", { class: kind, title: `${range(elements)}: ${formula}` });
    segment.style.flexGrow = Math.max(1, Math.sqrt(elements[1] - elements[0]));
    segment.style.backgroundImage = fill(formula, kind === "stale");
    bar.append(segment);
  }

  line(part, text, kind) {
    return make("span", { class: `cellline ${kind}` },
      this.timeline.ranges.length > 1 ? make("small", {}, `${range(this.timeline.ranges[part])} `) : null,
      make("span", { class: "f" }, text));
  }

  /** What one device has, to compare with. */
  reference() {
    const bar = make("div", { class: "bar", "aria-hidden": "true" });
    const card = make("div", { class: "reference" }, make("div", { class: "rank" }, "one device"), bar);
    this.timeline.expected.forEach((formula, part) => {
      this.segment(bar, part, formula, "");
      card.append(this.line(part, formula, ""));
    });
    return card;
  }

  cell(rank, held, changed) {
    if (rank < 0 || !this.timeline.ranges.some((_, part) => held.has(`${rank}/${part}`))) {
      return make("td", { class: "empty" }, rank < 0 ? "" : "·");
    }
    const bar = make("div", { class: "bar", "aria-hidden": "true" });
    const lines = [];
    const spoken = [];
    let bad = false;
    let owner = false;
    this.timeline.ranges.forEach((_, part) => {
      const content = held.get(`${rank}/${part}`);
      if (!content) return;
      const marks = [...content.marks];
      const kind = marks.includes("✗") ? "bad" : marks.includes("~") ? "stale" : "";
      bad = bad || kind === "bad";
      owner = owner || marks.includes("*");
      this.segment(bar, part, content.formula, kind);
      lines.push(this.line(part, [content.formula, ...marks].join(" "), kind));
      spoken.push([content.formula, ...marks.map((mark) => words[mark])].join(", "));
    });
    return make("td", { "data-rank": rank, class: [bad ? "bad" : "", changed ? "changed" : ""].join(" ").trim() || null,
      "aria-label": `rank ${rank}: ${spoken.join("; ")}` },
    make("div", { class: "rank" }, make("span", {}, `rank ${rank}`), owner ? make("span", {}, "owns") : null), bar, ...lines);
  }

  legend(held) {
    const marks = new Set([...held.values()].flatMap((content) => [...content.marks]));
    const items = [make("span", {}, make("i"), "a slice of the buffer: each rank's share has its colour, as wide as its weight")];
    if (marks.has("~")) items.push(make("span", {}, make("i", { class: "stale" }), "~ stale: another rank owns it"));
    if (marks.has("*")) items.push(make("span", {}, "* handed to the optimizer of this cell's rank"));
    if (marks.has("✗")) {
      items.push(make("span", {}, make("i", { class: "bad" }), "✗ wrong: not what one device has"));
    }
    if (this.timeline.ranks_left_out) items.push(make("span", {}, `not shown: ${this.timeline.ranks_left_out}`));
    if (this.timeline.ranges_left_out) {
      items.push(make("span", {}, `not shown: ${count(this.timeline.ranges_left_out, "more range")} of elements`));
    }
    if (this.timeline.steps_left_out) items.push(make("span", {}, `not shown: ${count(this.timeline.steps_left_out, "step")} of other micro-batches`));
    this.notes.replaceChildren(...items);
  }

  /** A line between neighbours of each group that communicates in this step. */
  arrows() {
    if (!this.svg || !this.svg.isConnected) return;
    const groups = this.timeline.steps[this.at].groups;
    const origin = this.board.getBoundingClientRect();
    this.svg.setAttribute("width", 1);
    this.svg.setAttribute("height", 1);
    const marker = '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" ' +
      'orient="auto-start-reverse" markerUnits="userSpaceOnUse"><path d="M0 0 8 4 0 8z"/></marker>';
    const place = (rank) => {
      const cell = this.board.querySelector(`td[data-rank="${rank}"]`);
      if (!cell) return null;
      const box = cell.getBoundingClientRect();
      const left = box.left - origin.left + this.board.scrollLeft;
      const top = box.top - origin.top + this.board.scrollTop;
      return { table: cell.closest("table"), row: cell.parentElement.rowIndex, column: cell.cellIndex, left, top, right: left + box.width, bottom: top + box.height, x: left + box.width / 2, y: top + box.height / 2 };
    };
    const paths = [];
    for (const group of groups.slice(0, 64)) {
      for (let index = 1; index < group.length; index += 1) {
        const from = place(group[index - 1]);
        const to = place(group[index]);
        if (!from || !to) continue;
        if (from.table !== to.table) continue;  // A line across tables would run through other ranks.
        const line = this.connect(from, to);
        paths.push(`<path d="${line}" marker-start="url(#tip)" marker-end="url(#tip)"/>`);
      }
    }
    this.svg.innerHTML = `<defs>${marker}</defs>${paths.join("")}`;
  }

  /** From card to card: straight between neighbours, else in a bow around what lies between. */
  connect(from, to) {
    if (from.row === to.row) {
      if (Math.abs(from.column - to.column) === 1) {
        return from.x < to.x ? `M${from.right} ${from.y}L${to.left} ${to.y}` : `M${from.left} ${from.y}L${to.right} ${to.y}`;
      }
      return `M${from.x} ${from.top}Q${(from.x + to.x) / 2} ${from.top - 34} ${to.x} ${to.top}`;
    }
    if (from.column === to.column && Math.abs(from.row - to.row) > 1) {
      return `M${from.right} ${from.y}Q${from.right + 44} ${(from.y + to.y) / 2} ${to.right} ${to.y}`;
    }
    return from.y < to.y ? `M${from.x} ${from.bottom}L${to.x} ${to.top}` : `M${from.x} ${from.top}L${to.x} ${to.bottom}`;
  }

  /** The ranks that communicate with this one in the step. */
  peers(rank) {
    const group = this.timeline.steps[this.at].groups.find((one) => one.includes(rank)) || [];
    for (const cell of this.board.querySelectorAll("td[data-rank]")) {
      cell.classList.toggle("peer", group.includes(Number(cell.dataset.rank)));
    }
  }

  move(by) {
    const at = this.at + by;
    if (at >= 0 && at < this.timeline.steps.length) this.show(at);
  }

  play() {
    if (this.timer) return this.stop();
    if (this.at === this.timeline.steps.length - 1) this.show(0);
    this.button.textContent = "❚❚ Pause";
    this.timer = setInterval(() => {
      if (this.at === this.timeline.steps.length - 1) this.stop();
      else this.move(1);
    }, 1400);
    return undefined;
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
    this.button.textContent = "▶ Play";
  }
}
