// The page's address holds what is shown: #devices?at=12.5&from=3. Opening it again shows it again.
const KEPT = {batch: "batch", dataset: "dataset", at: "at", since: "from", kind: "kind", text: "text", event: "event", capture: "capture"}
const NUMBERS = ["batch", "dataset", "at", "since", "event", "capture"]

function keepAddress() {
  const kept = new URLSearchParams()
  for (const [name, key] of Object.entries(KEPT)) {
    const own = {kind: "events", text: "events", event: "events", batch: "batches", dataset: "batches", capture: "devices"}[name]
    const value = state[name]
    if (value != null && value !== "" && (own == null || own === state.page)) kept.set(key, String(value))
  }
  const wanted = `#${state.page}${kept.size ? "?" + kept : ""}`
  if (location.hash !== wanted && (location.hash || state.page !== "overview" || kept.size)) {
    history.replaceState(null, "", location.pathname + location.search + wanted)
  }
}

function readAddress() {
  const [page, query] = location.hash.slice(1).split("?"), kept = new URLSearchParams(query ?? "")
  const known = all("main > section").map((section) => section.dataset.page)
  const change = {page: known.includes(page) ? page : "overview"}
  for (const [name, key] of Object.entries(KEPT)) {
    const given = kept.get(key)
    if (given == null) continue
    const number = Number(given)
    if (!NUMBERS.includes(name)) change[name] = given
    else if (given.trim() && Number.isFinite(number) && number >= 0) change[name] = number
  }
  return change
}

function openPage() {
  Object.assign(state, readAddress())
  if (root.dataset.index === "true") state.page = "runs"
  for (const section of all("main > section")) section.hidden = section.dataset.page !== state.page
  for (const tab of all(".tabs a")) {
    if (tab.dataset.page === state.page) {
      tab.setAttribute("aria-current", "page")
      tab.scrollIntoView({block: "nearest", inline: "nearest"})
    } else tab.removeAttribute("aria-current")
  }
  send({})
  show()
  window.dispatchEvent(new Event("resize"))
}

// A link to a page of this run keeps the moment that is shown.
for (const tab of all(".tabs a")) {
  tab.addEventListener("click", (event) => {
    event.preventDefault()
    location.hash = tab.dataset.page
    send({page: tab.dataset.page})
    openPage()
  })
}
window.addEventListener("hashchange", openPage)
