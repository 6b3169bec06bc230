// One exercise: a live figure whose control is the seed, and beside it fields for the reader's
// numbers. Has Python judge them, says right or wrong beside each, and shows how it goes once all
// are right or the reader asks. The markup is written by servesim.drill; the judging is
// servesim.page's. Fires "exercise:judged" with the reply.

import { LiveFigure, replace } from "./figure.mjs";
import { Broke, CannotStart } from "./python.mjs";

export class Exercise {
  #root;
  #python;
  #form;
  #seed;
  #fields;
  #posed; // the seed whose task stands there
  #judged = null; // what was said last about it

  constructor(root, python) {
    this.#root = root;
    this.#python = python;
    this.#form = root.querySelector("form.live-controls");
    this.#seed = this.#form.elements.namedItem("seed");
    this.#fields = [...this.#form.querySelectorAll(".exercise-answer input")];
    this.#posed = this.#seed.value;
    // The figure does not redraw for a number that is being written.
    const answers = this.#form.querySelector(".exercise-answers");
    answers.addEventListener("input", (event) => {
      event.stopPropagation();
      this.#mark(event.target, null, ""); // what was said is about the number before
    });
    root.addEventListener("live:drawn", ({ detail }) => this.#drawn(detail.values.seed));
    // No longer judged at once: the figure draws when the fields are empty.
    this.#form.addEventListener("reset", () => this.#clear());
    this.#form.addEventListener("submit", () => this.#judge(this.#fields.map((f) => f.value)));
    this.#on(".exercise-show", () => this.#judge(null));
    this.#on(".exercise-next", () => this.#another());
    new LiveFigure(root, python);
    // Here one can be shown the answers of any seed; without Python there is the folded solution.
    const solution = root.nextElementSibling;
    if (solution?.matches(".exercise-solution")) {
      solution.hidden = !this.#form.hidden;
      python.addEventListener("failed", () => (solution.hidden = false));
    }
  }

  #on(selector, act) {
    this.#form.querySelector(selector).addEventListener("click", act);
  }

  #another() {
    this.#seed.value = (Number(this.#seed.value) + 1) % (Number(this.#seed.max) + 1);
    this.#seed.dispatchEvent(new Event("input", { bubbles: true }));
  }

  #drawn(seed) {
    if (seed !== this.#posed) {
      this.#posed = seed;
      this.#clear();
      for (const field of this.#fields) field.value = "";
    } else if (this.#judged) this.#tell(this.#judged); // the same task was drawn once more
  }

  #clear() {
    this.#judged = null;
    for (const field of this.#fields) this.#mark(field, null, "");
    this.#root.querySelector(".exercise-worked").replaceChildren();
  }

  async #judge(given) {
    const { id, dataset } = this.#root;
    const seed = this.#seed.value;
    const question = { target: dataset.live, id, params: dataset.params, values: { seed }, given };
    try {
      const reply = JSON.parse(await this.#python.ask(JSON.stringify(question)));
      if (this.#seed.value !== seed) return; // the reader has gone on
      if (reply.message) return this.#say("error", reply.message);
      this.#posed = seed;
      this.#judged = reply;
      this.#tell(reply);
      this.#root.dispatchEvent(new CustomEvent("exercise:judged", { bubbles: true, detail: reply }));
    } catch (error) {
      if (error instanceof CannotStart) return; // and the figure has given up
      if (!(error instanceof Broke)) throw error;
      this.#say("error", `Nothing was judged: ${error.message}. The next press starts Python anew.`);
    }
  }

  #tell({ right, says, status, picture, worked }) {
    this.#fields.forEach((field, i) => this.#mark(field, right[i], says[i]));
    if (picture) {
      replace(this.#root, ".live-picture", picture);
      const slot = `<div class="exercise-worked">${worked}</div>`;
      replace(this.#root, ".exercise-worked", slot);
    }
    this.#say("ready", status);
  }

  #mark(field, right, says) {
    const output = this.#form.querySelector(`output[for="${CSS.escape(field.id)}"]`);
    output.value = says;
    output.dataset.right = right ?? "";
    if (right === false) field.setAttribute("aria-invalid", "true");
    else field.removeAttribute("aria-invalid");
  }

  #say(state, text) {
    this.#root.dataset.state = state;
    this.#root.querySelector("[role=status]").textContent = text;
  }
}
