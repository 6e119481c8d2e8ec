// The table of events, and the one that is shown whole.
function showEvents() {
  const kinds = one(".event-kind")
  if (kinds.options.length === 1 && facts.event_kinds) {
    kinds.append(...facts.event_kinds.map((kind) => new Option(kind, kind)))
  }
  if (document.activeElement !== kinds) kinds.value = state.kind
  const text = one(".event-text")
  if (document.activeElement !== text) text.value = state.text
  one(".older").disabled = !facts.event_more
  one(".newest").disabled = state.before == null
}

function dressEvent(row) {
  const button = dressFirst(row, "button")
  button.type = "button"
  button.className = "link"
  button.setAttribute("aria-pressed", String(state.event === Number(button.textContent)))
}

one(".event-kind").addEventListener("change", (event) => send({kind: event.target.value, before: null}))
one(".event-text").addEventListener("input", (event) => send({text: event.target.value.slice(0, 200), before: null}))
one(".older").addEventListener("click", () => send({before: facts.event_last}))
one(".newest").addEventListener("click", () => send({before: null}))
one(".events tbody").addEventListener("click", (event) => {
  const number = event.target.closest("tr")?.querySelector("button")?.textContent
  if (number != null) send({event: state.event === Number(number) ? null : Number(number)})
  for (const button of all(".events tbody button")) {
    button.setAttribute("aria-pressed", String(state.event === Number(button.textContent)))
  }
})
