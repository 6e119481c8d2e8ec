// Programs import distlab as dl: a search for dl.watch finds distlab.watch.
document.addEventListener("DOMContentLoaded", () => {
  if (typeof Search === "undefined") return
  const query = Search.query
  Search.query = (words, ...others) => query(words.replace(/\bdl\./g, "distlab."), ...others)
})
