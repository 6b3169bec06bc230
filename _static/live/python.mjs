// Python for a page: one web worker, started when it is first needed, and started again after it
// broke. `ask` answers in the order asked. Fires "progress" with a sentence while it starts, and
// "failed" with a reason if it cannot; it does not try again then.

const PATIENCE_MS = 60_000;

/** Python cannot run here: the figures must do without. */
export class CannotStart extends Error {}

/** Python broke while it drew: the next question starts it anew. */
export class Broke extends Error {}

export class Python extends EventTarget {
  #script;
  #running = null;
  #asked = 0;
  isReady = false;

  constructor(script) {
    super();
    this.#script = script;
  }

  /** Start, if that has not been done; wait until Python runs. */
  start() {
    this.#running ??= this.#launch();
    return this.#running.ready;
  }

  /** Send a question, a text; return the answer, a text. */
  async ask(question) {
    await this.start();
    const running = this.#running;
    return new Promise((resolve, reject) => {
      const id = ++this.#asked;
      const timer = setTimeout(() => {
        running.break(new Broke(`Python gave no answer for ${PATIENCE_MS / 1000} seconds`));
      }, PATIENCE_MS);
      running.waiting.set(id, { resolve, reject, timer });
      running.worker.postMessage({ id, question });
    });
  }

  #launch() {
    const running = { waiting: new Map() };
    running.ready = new Promise((resolve, reject) => {
      const worker = (running.worker = new Worker(this.#script, { type: "module" }));
      const fail = (why) => {
        worker.terminate();
        reject(new CannotStart(why));
        this.dispatchEvent(new CustomEvent("failed", { detail: why }));
      };
      running.break = (error) => {
        worker.terminate();
        this.#running = null;
        this.isReady = false;
        for (const { reject, timer } of running.waiting.values()) {
          clearTimeout(timer);
          reject(error);
        }
        running.waiting.clear();
      };
      worker.onmessage = ({ data }) => {
        if (data.progress) this.dispatchEvent(new CustomEvent("progress", { detail: data.progress }));
        else if (data.ready) {
          this.isReady = true;
          resolve();
        } else if (data.failed) fail(data.failed);
        else if (data.broke) running.break(new Broke(data.broke));
        else {
          const { resolve, timer } = running.waiting.get(data.id);
          clearTimeout(timer);
          running.waiting.delete(data.id);
          resolve(data.answer);
        }
      };
      // The script itself could not be had, or failed outside of everything that it guards.
      worker.onerror = (event) => {
        event.preventDefault();
        const why = event.message || "Python's script could not be loaded";
        if (this.isReady) running.break(new Broke(why));
        else fail(why);
      };
    });
    return running;
  }
}
