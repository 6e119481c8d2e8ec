// What all parts of the script share. Texts of a run reach the page through textContent,
// never as markup.
const AWAY = {
  status: "away", halted: false, status_text: "no connection", trouble_title: "No connection",
  trouble: "The page shows what it received last, and keeps trying to reconnect.",
}
const START_LIMIT_MS = 30000
const one = (selector) => document.querySelector(selector)
const all = (selector) => Array.from(document.querySelectorAll(selector))
const root = document.documentElement
// The session's facts, and whether the session is out of reach.
let facts = {status: "reading", status_text: "reading", counts_examples: true, divides_batches: true}, away = false
// The reader's choices; their names are those of view.py.
const state = {
  page: "overview", batch: null, dataset: null, at: null, since: null, speed: null, replica: 0, device: null,
  reduction: 0, capture: null,
  kind: "", text: "", before: null, event: null, captures: 0, orders: 0, loop: 0, order: "",
  simulations: 0, simulated: "", sizes: "",
}
let view = null

// Changes some choices and sends them to the session.
function send(change) {
  Object.assign(state, change)
  keepAddress()
  if (view != null) view.data = {json: [JSON.stringify(state)]}
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text
}

// Fills a list with an element for each item, when the items changed.
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

function thousands(number) {
  return number.toLocaleString("en").replaceAll(",", "\u202f")
}
