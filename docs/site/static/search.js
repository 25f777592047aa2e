// What is shown of a page that was found is prose, as what is searched is: no code, no tables.
document.addEventListener("DOMContentLoaded", () => {
  if (typeof Search === "undefined") return;
  const textOf = Search.htmlToText;
  Search.htmlToText = (html, anchor) => {
    const page = new DOMParser().parseFromString(html, "text/html");
    page.querySelectorAll("table, .cell_input, .output.stream").forEach((part) => part.remove());
    return textOf(page.documentElement.outerHTML, anchor);
  };
});
