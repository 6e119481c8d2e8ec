// Puts the session's facts in their places.
function troubleOf(said) {
  if (away) return ["No connection", "The page shows what came last, and looks for its server again."]
  if (said.reading_trouble) return ["The run can't be read any further", said.reading_trouble]
  if (said.status === "failed") return ["The run failed", said.message]
  if (said.status === "killed") return ["The run ended without closing its recording", "Everything it had stored is shown."]
  if (said.error_count) return [`${said.error_count} errors`, said.errors.at(-1)]
  return null
}

// How far the reading of a long run is.
function shareOf({status, read_share}) {
  return status === "reading" && read_share != null ? ` ${Math.floor(100 * read_share)} %` : ""
}

function show() {
  const trouble = troubleOf(facts)
  const status = away ? "away" : facts.status
  const texts = {
    ...facts, status_text: (STATUS[status] ?? status) + shareOf(facts),
    trouble_title: trouble?.[0] ?? "", trouble: trouble?.[1] ?? "",
  }
  for (const place of all("[data-text]")) setText(place, String(texts[place.dataset.text] ?? "\u2013"))
  for (const place of all("[data-list]")) setItems(place, facts[place.dataset.list] ?? [], textItem)
  one(".mark").dataset.status = status
  const shown = {
    ...facts, trouble: trouble != null, has_advice: (facts.advice ?? []).length > 0,
    past: facts.time_at != null || facts.time_since != null,
  }
  for (const place of all("[data-show]")) place.hidden = !shown[place.dataset.show]
  for (const link of all("[data-export]")) {
    const wanted = `export/${link.dataset.export}${facts.run_key ? "?" + new URLSearchParams({run: facts.run_key}) : ""}`
    if (link.getAttribute("href") !== wanted) link.setAttribute("href", wanted)
  }
  root.dataset.shown = facts.page ?? ""
  root.dataset.index = String(Boolean(facts.index))
  document.title = `${facts.run ?? "distlab"} \u00b7 ${texts.status_text} \u00b7 distlab`
  showProgress()
  showAdvice()
  showBatch()
  showTime()
  showLoops()
  showEvents()
  showCapture()
  showParts()
}

// Of very many devices some can be shown by themselves.
function showParts() {
  const parts = facts.device_parts ?? []
  for (const list of all(".device-part")) {
    if (list.options.length !== parts.length + 1) {
      const options = parts.map(([first, name]) => new Option(name, first))
      list.replaceChildren(list.options[0], ...options)
    }
    list.value = state.device ?? ""
  }
}

for (const list of all(".device-part")) {
  list.addEventListener("change", () => {
    tell({device: list.value === "" ? null : Number(list.value)})
  })
}

function showAdvice() {
  setItems(one(".advice ol"), facts.advice ?? [], adviceItem)
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

function showCapture() {
  one(".take").disabled = Boolean(facts.capture_busy)
  setText(one(".take"), facts.capture_busy ? "Capturing\u2026" : "Capture 5 steps")
}

one(".take").addEventListener("click", () => tell({captures: state.captures + 1}))
