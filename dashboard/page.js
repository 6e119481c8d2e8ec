"use strict";
// Puts the session's facts on the page as plain text, and tells the session what
// the reader chose. Everything a run says reaches the page through textContent.
(() => {
  const STATUS = {
    reading: "reading", live: "live", finished: "finished", failed: "failed",
    interrupted: "interrupted", killed: "ended without closing", away: "no connection",
  }
  const START_LIMIT_MS = 30000
  const one = (selector) => document.querySelector(selector)
  const all = (selector) => Array.from(document.querySelectorAll(selector))
  const root = document.documentElement
  let facts = {}, view = null, away = false, chosen = null, follow = true

  function setText(element, text) {
    if (element.textContent !== text) element.textContent = text
  }

  function setList(element, texts) {
    if (element.dataset.shown === JSON.stringify(texts)) return
    element.dataset.shown = JSON.stringify(texts)
    element.replaceChildren(...texts.map((text) => {
      const item = document.createElement("li")
      item.textContent = text
      return item
    }))
  }

  function troubleOf(said) {
    if (away) return ["No connection", "The page shows what came last. Is the process still running? Reload to try again."]
    if (said.status === "failed") return ["The run failed", said.message]
    if (said.status === "killed") return ["The run ended without closing its recording", "Everything it had stored is shown."]
    if (said.error_count) return [`${said.error_count} errors`, said.errors.at(-1)]
    return null
  }

  function show() {
    const trouble = troubleOf(facts)
    const status = away ? "away" : facts.status
    const texts = {
      ...facts, status_text: STATUS[status] ?? status,
      trouble_title: trouble?.[0] ?? "", trouble: trouble?.[1] ?? "",
    }
    for (const place of all("[data-text]")) setText(place, String(texts[place.dataset.text] ?? "–"))
    for (const place of all("[data-list]")) setList(place, facts[place.dataset.list] ?? [])
    one(".mark").dataset.status = status
    const shown = {...facts, trouble: trouble != null, has_advice: (facts.advice ?? []).length > 0}
    for (const place of all("[data-show]")) place.hidden = !shown[place.dataset.show]
    document.title = `${facts.run ?? "distlab"} · ${texts.status_text} · distlab`
    showProgress()
    showBatch()
    showAdvice()
    one(".take").disabled = Boolean(facts.capture_busy)
    setText(one(".take"), facts.capture_busy ? "Capturing\u2026" : "Capture 5 steps")
  }

  function showAdvice() {
    const list = one(".advice ol"), found = facts.advice ?? []
    if (list.dataset.shown === JSON.stringify(found)) return
    list.dataset.shown = JSON.stringify(found)
    list.replaceChildren(...found.map(adviceItem))
  }

  function adviceItem({cause, subject, text, remedy, evidence, steps, page}) {
    const item = document.createElement("li"), head = document.createElement("h3")
    const mark = document.createElement("b"), link = document.createElement("a")
    mark.textContent = cause
    head.append(mark, ` ${subject}`)
    link.href = `#${page}`
    link.textContent = `see ${page}`
    const said = document.createElement("p"), cure = document.createElement("p"), numbers = document.createElement("p")
    said.textContent = text
    cure.textContent = remedy
    cure.className = "remedy"
    numbers.className = "note"
    numbers.append([evidence, steps].filter(Boolean).join("; ") + " \u00b7 ", link)
    item.append(head, said, cure, numbers)
    return item
  }

  function showProgress() {
    const bar = one(".bar")
    bar.hidden = facts.progress == null
    if (facts.progress == null) return
    one(".bar i").style.width = `${100 * facts.progress}%`
    bar.setAttribute("aria-valuenow", String(Math.round(100 * facts.progress)))
  }

  function showBatch() {
    const slider = one(".slider"), number = one(".number input")
    slider.min = number.min = facts.batch_first
    slider.max = number.max = facts.batch_last
    if (follow || document.activeElement !== slider) slider.value = follow ? facts.batch_last : chosen
    if (document.activeElement !== number) number.value = facts.batch_number ?? 0
    one(".follow span").textContent = facts.status === "live" ? "follow live" : "show the last"
    one(".uneven").hidden = !(facts.batch_uneven ?? []).length
    const sizes = one(".sizes"), rows = facts.batch_sizes ?? []
    if (sizes.dataset.shown === JSON.stringify(rows)) return
    sizes.dataset.shown = JSON.stringify(rows)
    sizes.replaceChildren(...rows.map(sizeRow))
  }

  function sizeRow({replica, size, text, color}) {
    const row = document.createElement("li"), mark = document.createElement("i")
    const name = document.createElement("span"), amount = document.createElement("b")
    mark.style.setProperty("--mark", color)
    name.textContent = replica
    amount.textContent = text
    row.className = size === 0 ? "empty" : text.includes("of") ? "partial" : "full"
    row.dataset.size = size
    row.append(mark, name, amount)
    return row
  }

  // Rows stay and only their texts change, so that what a reader selects stays selected.
  function showTable(name, rows) {
    const headings = all(`.${name} thead th`), body = one(`.${name} tbody`)
    const texts = headings.map((heading) => rows.get_column(heading.dataset.column))
    const titles = headings.map((heading) => rows.get_column(heading.dataset.title))
    const count = texts[0].length
    while (body.rows.length > count) body.deleteRow(-1)
    while (body.rows.length < count) body.insertRow().append(...headings.map(cellBelow))
    Array.from(body.rows).forEach((row, place) => Array.from(row.cells).forEach((cell, column) => {
      setText(cell, String(texts[column][place]))
      if (titles[column]) cell.title = titles[column][place]
    }))
    one(`.${name}`).hidden = !count
  }

  function cellBelow(heading, column) {
    const cell = document.createElement(column ? "td" : "th")
    if (!column) cell.scope = "row"
    cell.className = heading.className
    return cell
  }

  function tell(change) {
    if (view == null) return
    view.data = {...view.data, ...change}
  }

  function choose(number) {
    follow = false
    chosen = Math.min(Math.max(Math.round(number), facts.batch_first), facts.batch_last)
    one(".follow input").checked = false
    one(".slider").value = chosen
    tell({batch: [chosen], follow: [false]})
  }

  function setFollow(wanted) {
    follow = wanted
    chosen = facts.batch_number ?? 0
    tell({batch: [chosen], follow: [wanted]})
    show()
  }

  function openPage() {
    const wanted = location.hash.slice(1)
    const page = all("main > section").some((section) => section.dataset.page === wanted) ? wanted : "overview"
    for (const section of all("main > section")) section.hidden = section.dataset.page !== page
    for (const tab of all(".tabs a")) tab.setAttribute("aria-selected", String(tab.dataset.page === page))
    tell({page: [page]})
    window.dispatchEvent(new Event("resize"))
  }

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
    for (const [name, source] of [["reductions", "reduction_rows"], ["programs", "program_rows"]]) {
      const rows = page.get_model_by_name(source)
      rows.properties.data.change.connect(() => showTable(name, rows))
      showTable(name, rows)
    }
    page.on_event("connection_lost", () => { away = true; show() })
    page.on_event("client_reconnected", () => { away = false; show() })
    read()
    openPage()
    root.dataset.ready = "true"
  }

  function waitForModels(since) {
    const page = window.Bokeh?.documents?.[0]
    if (page?.get_model_by_name("facts") && page.get_model_by_name("view")) connect(page)
    else if (performance.now() - since < START_LIMIT_MS) setTimeout(waitForModels, 30, since)
    else { away = true; show() }
  }

  one(".theme").addEventListener("click", switchTheme)
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint)
  window.addEventListener("hashchange", openPage)
  one(".slider").addEventListener("input", (event) => choose(Number(event.target.value)))
  one(".number input").addEventListener("change", (event) => choose(Number(event.target.value)))
  one(".follow input").addEventListener("change", (event) => setFollow(event.target.checked))
  one(".take").addEventListener("click", () => {
    if (view != null) tell({capture: [(view.data.capture?.[0] ?? 0) + 1]})
  })
  one(".uneven").addEventListener("click", () => {
    const from = facts.batch_number ?? 0, uneven = facts.batch_uneven ?? []
    if (uneven.length) choose(uneven.find((number) => number > from) ?? uneven[0])
  })
  for (const button of all(".step")) {
    button.addEventListener("click", () => choose((facts.batch_number ?? 0) + Number(button.dataset.move)))
  }
  openPage()
  waitForModels(performance.now())
})()
