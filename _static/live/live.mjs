// The live figures and exercises of a page. Finds them, and wires each to one Python for all, if
// this browser can run it. Where this script does not run at all, in a page opened as a file for
// example, a figure stays what it is without it: picture, sentence, table, and a line that says so.

const figures = document.querySelectorAll("[data-live]");
const isExercise = (figure) => figure.matches(".live-exercise");

if (figures.length) {
  // Pages without a figure fetch no more than this file, and those without an exercise not its.
  const [{ LiveFigure }, { Python }, exercise] = await Promise.all([
    import("./figure.mjs"),
    import("./python.mjs"),
    [...figures].some(isExercise) && import("./exercise.mjs"),
  ]);
  const python = new Python(new URL("worker.mjs", import.meta.url));
  for (const figure of figures) {
    if (isExercise(figure)) new exercise.Exercise(figure, python);
    else new LiveFigure(figure, python);
  }
}
