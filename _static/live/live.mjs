// The live figures of a page. Finds them, and wires each to one Python for all, if this browser
// can run it. Where this script does not run at all, in a page opened as a file for example, a
// figure stays what it is without it: picture, sentence, table, and a line that says so.

const figures = document.querySelectorAll("[data-live]");

if (figures.length) {
  // Pages without a figure fetch no more than this file.
  const [{ LiveFigure }, { Python }] = await Promise.all([
    import("./figure.mjs"),
    import("./python.mjs"),
  ]);
  const python = new Python(new URL("worker.mjs", import.meta.url));
  for (const figure of figures) new LiveFigure(figure, python);
}
