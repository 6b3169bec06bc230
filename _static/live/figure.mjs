// One live figure: shows its controls, starts Python when the reader comes near, redraws after
// each move, says in its status line what it is doing, and keeps its values in a link.
// The markup is written by servesim.explore; the drawing is servesim.page's.
// Fires "live:drawn" with { values, picture, numbers } after each new picture.

import { Broke, CannotStart } from "./python.mjs";
import { Steps } from "./steps.mjs";

const NEAR = "300px 0px";
const SLOW_MS = 400;
const MOST_STEPS = 1e6; // as in servesim.steps

const IDLE = "Move a control: Python then starts in this page (once, about 6 MB).";
const READY = "Python runs in this page: the picture follows the controls.";
const BUSY = "Computing …";
const PROMISED = "The address asks for other values than the picture shows: press a control to draw them.";

const connection = navigator.connection;
const metered = () =>
  Boolean(
    connection?.saveData ||
      connection?.type === "cellular" ||
      /2g/.test(connection?.effectiveType ?? "") ||
      matchMedia("(prefers-reduced-data: reduce)").matches,
  );

export class LiveFigure {
  #root;
  #python;
  #form;
  #status;
  #wanted = null; // the values to draw next; an older wish is forgotten
  #drawing = false;
  #started = false;
  #ends; // where the controls end at the start

  constructor(root, python) {
    this.#root = root;
    this.#python = python;
    this.#form = root.querySelector("form.live-controls");
    this.#status = root.querySelector("[role=status]");
    if (typeof Worker !== "function" || typeof WebAssembly !== "object") {
      this.#giveUp("this browser cannot run Python in a page");
      return;
    }
    this.#ends = this.#controls.map((control) => control.max);
    const restored = this.#restore();
    this.#listen();
    this.#form.hidden = false;
    this.#say("idle", restored ? PROMISED : IDLE);
    this.#showValues();
    if (metered()) return;
    if (restored) this.#move();
    else this.#startWhenNear();
  }

  // ---------------------------------------------------------------- what the reader does

  #listen() {
    const form = this.#form;
    form.addEventListener("input", () => this.#move());
    form.addEventListener("submit", (event) => event.preventDefault());
    // Controls have their starting values when the event is over.
    form.addEventListener("reset", () => {
      // An end that depends on the other values goes back with them.
      this.#controls.forEach((control, i) => "steps" in control.dataset && (control.max = this.#ends[i]));
      setTimeout(() => this.#move());
    });
    form.addEventListener("click", ({ target }) => {
      if (!this.#started && target.matches("input, select, button")) this.#move();
    });
    form.querySelector(".live-link")?.addEventListener("click", (event) => {
      event.preventDefault();
      this.#copyLink();
    });
    this.#root.querySelector(".live-summary")?.setAttribute("aria-live", "polite");
    for (const slider of form.querySelectorAll("input[data-steps]")) new Steps(this.#root, slider);
    this.#python.addEventListener("failed", ({ detail }) => this.#giveUp(detail));
    this.#python.addEventListener("progress", ({ detail }) => {
      if (this.#root.dataset.state === "starting") this.#say("starting", detail);
    });
  }

  #startWhenNear() {
    const near = new IntersectionObserver(
      (seen) => seen.some((entry) => entry.isIntersecting) && begin(),
      { rootMargin: NEAR },
    );
    const begin = () => {
      near.disconnect();
      if (!this.#started) this.#start().catch(() => {});
    };
    near.observe(this.#root);
    for (const type of ["pointerenter", "focusin", "pointerdown"]) {
      this.#root.addEventListener(type, begin, { once: true });
    }
  }

  // ------------------------------------------------------------------------ the controls

  get #controls() {
    return [...this.#form.elements].filter((control) => control.name);
  }

  #values() {
    return Object.fromEntries(this.#controls.map((control) => [control.name, control.value]));
  }

  #showValues() {
    for (const { id, value } of this.#controls) {
      const output = this.#form.querySelector(`output[for="${CSS.escape(id)}"]`);
      if (output) output.value = value;
    }
    const link = this.#form.querySelector(".live-link");
    if (link) link.href = this.#address();
  }

  /** The page's address with these values; its fragment leads to the figure. */
  #address() {
    const address = new URL(location.href);
    for (const [name, value] of Object.entries(this.#values())) {
      address.searchParams.set(`${this.#root.id}.${name}`, value);
    }
    address.hash = this.#root.id;
    return address.href;
  }

  /** Take values from the address; tell whether any differs from the picture's. */
  #restore() {
    const before = JSON.stringify(this.#values());
    const asked = new URLSearchParams(location.search);
    for (const control of this.#controls) {
      const value = asked.get(`${this.#root.id}.${control.name}`);
      if (value === null) continue;
      // A slider takes any number to its grid by itself, and anything else to its middle.
      const fits = control.options
        ? [...control.options].some((option) => option.value === value)
        : value.trim() !== "" && Number.isFinite(Number(value));
      if (!fits) continue;
      // As a number, not as it was written: a slider does not know 0x5.
      const number = Number(value);
      if ("steps" in control.dataset) control.max = Math.max(control.max, Math.min(number, MOST_STEPS));
      control.value = control.options ? value : number;
    }
    return JSON.stringify(this.#values()) !== before;
  }

  async #copyLink() {
    const address = this.#address();
    history.replaceState(history.state, "", address);
    const state = this.#root.dataset.state;
    try {
      await navigator.clipboard.writeText(address);
      this.#say(state, "Copied: a link that opens this page with these values.");
    } catch {
      this.#say(state, "The address of this page now holds these values.");
    }
  }

  // -------------------------------------------------------------------------- the picture

  async #start() {
    this.#started = true;
    if (!this.#python.isReady) this.#say("starting", "Starting Python …");
    await this.#python.start();
    // It may have been running already, for another figure.
    if (/idle|starting/.test(this.#root.dataset.state)) this.#say("ready", READY);
  }

  #move() {
    this.#showValues();
    this.#wanted = this.#values();
    if (!this.#drawing) this.#draw();
  }

  async #draw() {
    this.#drawing = true;
    while (this.#wanted) {
      const slow = setTimeout(() => this.#python.isReady && this.#say("ready", BUSY), SLOW_MS);
      try {
        await this.#start();
        const values = this.#wanted;
        this.#wanted = null;
        const { id, dataset } = this.#root;
        const question = { target: dataset.live, id, params: dataset.params, values };
        const reply = JSON.parse(await this.#python.ask(JSON.stringify(question)));
        if (reply.message) this.#say("error", reply.message);
        else this.#show(this.#limited(values, reply.limits), reply);
      } catch (error) {
        if (error instanceof CannotStart) break; // and the figure has given up
        if (!(error instanceof Broke)) throw error;
        this.#say("error", `The last picture stays: ${error.message}. The next move starts Python anew.`);
      } finally {
        clearTimeout(slow);
      }
    }
    this.#drawing = false;
  }

  /** Let controls end where the picture says; return the values that it shows. */
  #limited(values, limits = {}) {
    if (this.#wanted) return values; // the reader has moved on
    const shown = { ...values };
    for (const control of this.#controls) {
      const last = limits[control.name];
      if (last === undefined) continue;
      control.max = last;
      if (Number(shown[control.name]) > last) shown[control.name] = String(last);
    }
    this.#showValues();
    return shown;
  }

  #show(values, { picture, numbers }) {
    replace(this.#root, ".live-picture", picture);
    replace(this.#root, ".live-numbers-slot", `<div class="live-numbers-slot">${numbers}</div>`);
    this.#say("ready", READY);
    const detail = { values, picture, numbers };
    this.#root.dispatchEvent(new CustomEvent("live:drawn", { bubbles: true, detail }));
  }

  #giveUp(why) {
    this.#form.hidden = true;
    this.#say(
      "error",
      `The controls do not work here: ${why}. The picture and its numbers stay as they are; ` +
        "in Jupyter the controls move.",
    );
  }

  #say(state, text) {
    if (this.#root.dataset.state !== state) this.#root.dataset.state = state;
    if (this.#status.textContent !== text) this.#status.textContent = text;
  }
}

// What keeps its place, and the reader's, when a picture changes: scrolled boxes, an opened table.
const LASTING = ".live-scroll, .live-summary, .live-table";

/** Put new markup in an element's place, without touching boxes that are in the old and the new. */
export function replace(root, selector, markup) {
  const template = document.createElement("template");
  template.innerHTML = markup;
  const now = root.querySelector(selector);
  const next = template.content.querySelector(selector);
  const old = [...now.querySelectorAll(LASTING)];
  const fresh = [...next.querySelectorAll(LASTING)];
  if (old.length && old.map((e) => e.className).join() === fresh.map((e) => e.className).join()) {
    old.forEach((box, i) => {
      if (box.getAttribute("aria-label") !== fresh[i].getAttribute("aria-label")) {
        box.setAttribute("aria-label", fresh[i].getAttribute("aria-label"));
      }
      box.replaceChildren(...fresh[i].childNodes);
    });
  } else {
    now.replaceChildren(...next.childNodes);
  }
}
