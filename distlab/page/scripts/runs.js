// The runs of a folder: open one, or compare two.
let runRows = null

function hrefOf(run, other) {
  const query = new URLSearchParams({run})
  if (other) query.set("compare", other)
  return `?${query}#${other ? "compare" : "overview"}`
}

function showRuns(rows) {
  runRows = rows
  const keys = rows.get_column("key"), wanted = one(".run-search").value.trim().toLowerCase()
  showTable("runs", rows, (row, place) => {
    const link = dressFirst(row, "a")
    link.href = hrefOf(keys[place])
    row.dataset.status = rows.get_column("status")[place]
    const text = row.textContent.toLowerCase()
    row.hidden = wanted !== "" && !text.includes(wanted)
  })
  for (const [selector, chosen] of [[".run-a", 0], [".run-b", 1]]) {
    const list = one(selector), shown = JSON.stringify(keys)
    if (list.dataset.shown === shown) continue
    const kept = list.value
    list.dataset.shown = shown
    list.replaceChildren(...keys.map((key, place) => new Option(rows.get_column("run")[place], key)))
    list.value = keys.includes(kept) ? kept : keys[Math.min(chosen, keys.length - 1)] ?? ""
  }
  one(".comparing").hidden = keys.length < 2
  one(".no-runs").hidden = keys.length > 0
}

one(".run-search").addEventListener("input", () => { if (runRows) showRuns(runRows) })
one(".compare-runs").addEventListener("click", () => {
  location.href = hrefOf(one(".run-a").value, one(".run-b").value)
})
