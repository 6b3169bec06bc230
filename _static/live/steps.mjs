// The buttons of a stepper: first, back, play, next, last, and the keys for them. They move the
// slider of the figure and tell it so; what is drawn is the figure's business (figure.mjs).
// Playing waits for each picture before it asks for the next. It stops at the end, when the reader
// does anything else, when the page is hidden, and when a picture fails.

const PACE_MS = 1000;
const CALM_MS = 2000; // for those who asked their system for less motion

const calm = matchMedia("(prefers-reduced-motion: reduce)");
const KEYS = { ArrowLeft: "back", ArrowRight: "next", Home: "first", End: "last", " ": "play" };
// Here these keys mean something else.
const OTHERS = "select, textarea, summary, a, input, .live-scroll, .live-table";

export class Steps {
  #root;
  #slider;
  #buttons;
  #timer = 0;
  #playing = false;

  constructor(root, slider) {
    this.#root = root;
    this.#slider = slider;
    const all = [...slider.parentElement.querySelectorAll("button[data-go]")];
    this.#buttons = Object.fromEntries(all.map((button) => [button.dataset.go, button]));
    for (const [go, button] of Object.entries(this.#buttons)) {
      button.addEventListener("click", () => this.go(go));
    }
    root.addEventListener("keydown", (event) => this.#onKey(event));
    root.querySelector(".live-picture").addEventListener("click", () => {
      slider.focus({ preventScroll: true }); // so that keys work over the picture, too
    });
    // What we do ourselves is not trusted.
    root.addEventListener("input", (event) => event.isTrusted && this.pause());
    slider.form.addEventListener("reset", () => this.pause());
    root.addEventListener("live:drawn", () => this.#onDrawn());
    document.addEventListener("visibilitychange", () => document.hidden && this.pause());
    new MutationObserver(() => root.dataset.state === "error" && this.pause()).observe(root, {
      attributeFilter: ["data-state"],
    });
    this.#show();
  }

  /** Do what a button says. */
  go(where) {
    const { value, max } = this.#slider;
    if (where === "play") return this.#playing ? this.pause() : this.#play();
    this.pause();
    const to = { first: 0, back: Number(value) - 1, next: Number(value) + 1, last: Number(max) };
    this.#move(to[where]);
  }

  pause() {
    if (!this.#playing) return;
    clearTimeout(this.#timer);
    this.#playing = false;
    this.#show();
  }

  #play() {
    this.#playing = true;
    this.#show();
    const { value, max } = this.#slider;
    this.#move(Number(value) < Number(max) ? Number(value) + 1 : 0);
  }

  #onDrawn() {
    if (this.#playing) {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => this.#tick(), calm.matches ? CALM_MS : PACE_MS);
    }
    this.#show();
  }

  #tick() {
    const next = Number(this.#slider.value) + 1;
    if (next > Number(this.#slider.max)) this.pause();
    else this.#move(next);
  }

  #move(to) {
    const before = this.#slider.value;
    this.#slider.value = to; // keeps within its ends
    this.#show();
    if (this.#slider.value !== before) {
      this.#slider.dispatchEvent(new Event("input", { bubbles: true }));
    }
  }

  #onKey(event) {
    const { target, key } = event;
    const go = KEYS[key];
    if (!go || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    if (target === this.#slider ? key !== " " : target.closest(OTHERS)) return;
    if (key === " " && target.closest("button")) return; // presses the button
    event.preventDefault();
    this.go(go);
  }

  /** Say what can be done: nothing before the first step, nothing after the last. */
  #show() {
    const { value, max } = this.#slider;
    const { first, back, play, next, last } = this.#buttons;
    // Not `disabled`: that would take the focus away from whoever pressed the button.
    for (const button of [first, back]) button.setAttribute("aria-disabled", value === "0");
    for (const button of [next, last]) button.setAttribute("aria-disabled", value === max);
    play.textContent = this.#playing ? "Pause" : "Play";
    // A sentence a second is too much to listen to.
    const live = this.#playing ? "off" : "polite";
    this.#root.querySelector(".live-summary")?.setAttribute("aria-live", live);
  }
}
