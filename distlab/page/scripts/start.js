// What all parts of the script share. Everything a run says reaches the page through
// textContent, never as markup.
const STATUS = {
  reading: "reading", live: "live", finished: "finished", failed: "failed", index: "",
  interrupted: "interrupted", killed: "ended without closing", away: "no connection",
}
const START_LIMIT_MS = 30000
const one = (selector) => document.querySelector(selector)
const all = (selector) => Array.from(document.querySelectorAll(selector))
const root = document.documentElement
// What the session says, and whether it can be reached.
let facts = {}, away = false
// What the reader chose; the names are those of view.py.
const state = {
  page: "overview", batch: null, at: null, since: null, speed: null, replica: 0, device: null,
  reduction: 0,
  kind: "", text: "", before: null, event: null, captures: 0, orders: 0, loop: 0, order: "",
}
let view = null

function tell(change) {
  Object.assign(state, change)
  keepAddress()
  if (view != null) view.data = {json: [JSON.stringify(state)]}
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text
}

// Fills a list with what `make` makes of each item, when the items changed.
function setItems(list, items, make) {
  const shown = JSON.stringify(items)
  if (list.dataset.shown === shown) return
  list.dataset.shown = shown
  list.replaceChildren(...items.map(make))
}

function textItem(text) {
  const item = document.createElement("li")
  item.textContent = text
  return item
}
