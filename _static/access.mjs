// What keyboards and screen readers need, and the tools that made the page do not bring:
// a plot that scrolls in its own box can be scrolled by keyboard, and the switch of a folded cell
// is called what it says, "Show code cell source". And the launch button, which names the published
// book's JupyterLite, leads to the one beside this copy of the book, as do links to figures with
// values of their own, which name its pages.

for (const summary of document.querySelectorAll("details.hide > summary[aria-label]")) {
  summary.removeAttribute("aria-label");
}

const plots = document.querySelectorAll("figure:has(> img), .cell_output .output.image_png");

const seen = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
    else target.removeAttribute("tabindex");
  }
});
for (const plot of plots) seen.observe(plot);

const lite = new URL("../lite/lab/index.html", import.meta.url);

for (const link of document.querySelectorAll("a[href*='/lite/lab/index.html?path=']")) {
  link.href = lite.href + new URL(link.href).search;
}

// Sphinx writes into each page where it is published.
const published = document.querySelector("link[rel=canonical]");
if (published) {
  const folder = new URL(".", published.href).href;
  for (const link of document.querySelectorAll(`a[href^="${folder}"][href*="?"]`)) {
    link.href = new URL(link.href.slice(folder.length), location.href).href;
  }
}
