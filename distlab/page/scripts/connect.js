// Light and dark, and the connection to the session.
function repaint() {
  for (const model of Bokeh?.documents?.[0]?._all_models?.values() ?? []) {
    if (model.type === "Figure") model.change.emit()
  }
}

function switchTheme() {
  const dark = root.dataset.theme
    ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches
  root.dataset.theme = dark ? "light" : "dark"
  try { localStorage.setItem("distlab-theme", root.dataset.theme) } catch { /* not kept then */ }
  repaint()
}

function connect(page) {
  const source = page.get_model_by_name("facts")
  view = page.get_model_by_name("view")
  const read = () => {
    facts = JSON.parse(source.get_column("json")[0])
    show()
  }
  source.properties.data.change.connect(read)
  const tables = {
    reductions: "reduction_rows", programs: "programs_rows", events: "events_rows", runs: "runs_rows",
    workers: "workers_rows", links: "links_rows",
    closures: "closures_rows", server_links: "server_links_rows", pairs: "pairs_rows",
  }
  for (const [name, source] of Object.entries(tables)) {
    const rows = page.get_model_by_name(source)
    const draw = () => {
      if (name === "runs") showRuns(rows)
      else showTable(name, rows, {events: dressEvent, reductions: dressReduction}[name])
    }
    rows.properties.data.change.connect(draw)
    draw()
  }
  for (const place of all("[data-grids]")) {
    const rows = page.get_model_by_name(`${place.dataset.grids}_rows`)
    const draw = () => {
      place.innerHTML = rows.get_column("html")[0] ?? "" // the session has escaped its texts
      place.closest("article").hidden = !place.innerHTML
    }
    rows.properties.data.change.connect(draw)
    draw()
  }
  page.on_event("connection_lost", lost)
  page.on_event("client_reconnected", () => { away = false; show() })
  read()
  openPage()
  root.dataset.ready = "true"
}

// The address holds what is shown, so that a reloaded page shows the same.
function lost() {
  away = true
  show()
  const again = async () => {
    if (!away) return
    try {
      const answer = await fetch("health", {cache: "no-store"})
      // A server that was started again asks for the token, which the address may have.
      if (answer.ok || answer.status === 401) location.reload()
    } catch { /* not there yet */ }
    setTimeout(again, 2000)
  }
  setTimeout(again, 1000)
}

function waitForModels(since) {
  const page = window.Bokeh?.documents?.[0]
  if (page?.get_model_by_name("facts") && page.get_model_by_name("view")) connect(page)
  else if (performance.now() - since < START_LIMIT_MS) setTimeout(waitForModels, 30, since)
  else lost()
}

one(".show-all").addEventListener("click", () => {
  const timeline = Bokeh?.documents?.[0]?.roots().find((model) => model.name === "timeline")
  for (const model of timeline?.references() ?? []) if (model.type === "Figure") model.reset.emit()
})
one(".theme").addEventListener("click", switchTheme)
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint)
openPage()
waitForModels(performance.now())
