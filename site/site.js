// Code and tables that scroll can be reached, and scrolled, by keys.
addEventListener("load", () => {
  for (const block of document.querySelectorAll("pre > code, .md-typeset__scrollwrap")) {
    if (block.scrollWidth > block.clientWidth) block.tabIndex = 0;
  }
});
