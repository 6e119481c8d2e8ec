// The runs of a folder: open one, or compare those that are ticked, in that order.
let runRows = null
const asked = new URLSearchParams(location.search), others = asked.getAll("compare")
const ticked = new Set(others.length ? [asked.get("run"), ...others] : [])

function hrefOf(run, ...others) {
  const query = new URLSearchParams([["run", run], ...others.map((other) => ["compare", other])])
  return `?${query}#${others.length ? "compare" : "overview"}`
}

function tickedRuns() {
  const keys = new Set(runRows.get_column("key"))
  return [...ticked].filter((key) => keys.has(key))
}

function showTicked() {
  const count = tickedRuns().length, button = one(".compare-runs")
  button.disabled = count < 2
  setText(button, count < 2 ? "Tick two or more runs to compare" : `Compare ${count} runs`)
}

function showRuns(rows) {
  runRows = rows
  const keys = rows.get_column("key"), wanted = one(".run-search").value.trim().toLowerCase()
  showTable("runs", rows, (row, place) => {
    const link = dressFirst(row, "a")
    link.href = hrefOf(keys[place])
    const tick = row.querySelector("input") ?? document.createElement("input")
    tick.type = "checkbox"
    tick.value = keys[place]
    tick.checked = ticked.has(keys[place])
    tick.ariaLabel = `compare ${link.textContent}`
    link.after(tick)
    row.dataset.status = rows.get_column("status")[place]
    const text = row.textContent.toLowerCase()
    row.hidden = wanted !== "" && !text.includes(wanted)
  })
  showTicked()
  one(".comparing").hidden = keys.length < 2
  one(".no-runs").hidden = keys.length > 0
}

one(".run-search").addEventListener("input", () => { if (runRows) showRuns(runRows) })
one(".runs tbody").addEventListener("change", ({target}) => {
  if (target.checked) ticked.add(target.value)
  else ticked.delete(target.value)
  showTicked()
})
one(".compare-runs").addEventListener("click", () => { location.href = hrefOf(...tickedRuns()) })
