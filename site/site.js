// A block of code that scrolls can be reached, and scrolled, by keys.
addEventListener("load", () => {
  for (const block of document.querySelectorAll("pre > code")) {
    if (block.scrollWidth > block.clientWidth) block.tabIndex = 0;
  }
});
