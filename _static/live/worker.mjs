// Python itself, in a worker, so that the page stays responsive while it counts. Everything comes
// from the book's own site, and the list of packages names one: servesim, built with the page.
// Receives { id, question }; posts { progress }, then { ready } or { failed }, then for each
// question { id, answer }, or { broke } after which this worker is of no more use.

const home = new URL("../../pyodide/", import.meta.url);
let answer;

const say = (progress) => postMessage({ progress });

// Where its binary cannot be had, Pyodide warns and waits for ever. We would rather know.
const noBinary = new Promise((_, reject) => {
  const { instantiateStreaming } = WebAssembly;
  WebAssembly.instantiateStreaming = (...given) => {
    const made = instantiateStreaming(...given);
    made.catch(reject);
    return made;
  };
});

async function start() {
  say("Loading Python into this page (once, about 6 MB) …");
  const [{ loadPyodide }, list] = await Promise.all([
    import(new URL("pyodide.mjs", home)),
    // Asked for anew each time: it says which wheel is the present one.
    fetch(new URL("servesim-lock.json", home), { cache: "no-cache" }),
  ]);
  if (!list.ok) throw new Error(`${list.url} answered ${list.status}`);
  const options = {
    indexURL: home.href,
    lockFileContents: await list.text(),
    packageBaseUrl: home.href,
  };
  const python = await Promise.race([loadPyodide(options), noBinary]);
  say("Starting the simulator …");
  await python.loadPackage("servesim", { messageCallback: () => {}, checkIntegrity: true });
  return python.pyimport("servesim.page").answer;
}

const ready = start().then(
  (found) => {
    answer = found;
    postMessage({ ready: true });
  },
  (error) => postMessage({ failed: String(error?.message ?? error).trim().split("\n").at(-1) }),
);

onmessage = async ({ data: { id, question } }) => {
  await ready;
  try {
    postMessage({ id, answer: answer(question) });
  } catch (error) {
    // `answer` turns every exception into a sentence, so this is the end of the interpreter.
    postMessage({ broke: String(error?.message ?? error).trim().split("\n").at(-1) });
  }
};
