// Puts the session's facts in their places.
function show() {
  const shown = away ? {...facts, ...AWAY} : facts
  for (const place of all("[data-text]")) setText(place, String(shown[place.dataset.text] ?? "\u2013"))
  for (const place of all("[data-list]")) setItems(place, facts[place.dataset.list] ?? [], textItem)
  for (const place of all("[data-show]")) place.hidden = !shown[place.dataset.show]
  one(".mark").dataset.status = shown.halted ? "halted" : shown.status
  for (const link of all("[data-export]")) {
    const wanted = `export/${link.dataset.export}${facts.run_key ? "?" + new URLSearchParams({run: facts.run_key}) : ""}`
    if (link.getAttribute("href") !== wanted) link.setAttribute("href", wanted)
  }
  root.dataset.shown = facts.page ?? ""
  root.dataset.index = String(Boolean(facts.index))
  document.title = `${facts.run ?? "distlab"} \u00b7 ${shown.status_text} \u00b7 distlab`
  showProgress()
  showAdvice()
  showBatch()
  showTime()
  showLoops()
  showEvents()
  showCapture()
  showSimulation()
  showParts()
}

// Of very many devices a part can be shown alone.
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
    send({device: list.value === "" ? null : Number(list.value)})
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
  const finding = document.createElement("p"), cure = document.createElement("p"), numbers = document.createElement("p")
  finding.textContent = text
  cure.textContent = remedy
  cure.className = "remedy"
  numbers.className = "note"
  numbers.append([evidence, steps].filter(Boolean).join("; ") + " \u00b7 ", link)
  item.append(head, finding, cure, numbers)
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
  const list = one(".which-capture"), known = facts.captures ?? []
  setItems(list, known, ([number, text]) => new Option(text, number))
  if (list.value !== String(facts.capture)) list.value = facts.capture
  one(".take").disabled = Boolean(facts.capture_busy)
  setText(one(".take"), facts.capture_busy ? "Capturing\u2026" : "Capture 5 steps")
}

one(".which-capture").addEventListener("change", (event) => send({capture: Number(event.target.value)}))
one(".take").addEventListener("click", () => send({captures: state.captures + 1}))
