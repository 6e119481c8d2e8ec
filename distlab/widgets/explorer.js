// Controls for the choices, and below them a picture of their effects from the kernel.
const WAITING =
  "The kernel is busy: the choice takes effect when it is free, or at once in front ends that " +
  "can reach a busy kernel."
const ANSWER_WAITS_MS = 2500

function draw(model) {
  const fields = new Map()
  const note = element("p", { className: "quiet", textContent: WAITING, hidden: true })
  const picture = element("div", { className: "picture" })
  const form = element("div", { className: "choices" })
  const el = element("div", { className: "distlab-explorer" }, form, note, picture)
  let timer = 0

  function choose(name, value) {
    clearTimeout(timer)
    timer = setTimeout(() => { note.hidden = false }, ANSWER_WAITS_MS)
    model.send({ kind: "choose", name, value })
  }
  function input({ name, kind, options, most }) {
    if (kind === "one of") {
      const field = element("select", {}, ...options.map((option) =>
        element("option", { value: option, textContent: option })))
      field.onchange = () => choose(name, field.value)
      return field
    }
    const field = element("input", { type: kind === "text" ? "text" : "number", spellcheck: false })
    if (kind !== "text") Object.assign(field, { min: 1, max: most, step: 1 })
    field.onchange = () => choose(name, kind === "text" ? field.value : field.valueAsNumber)
    return field
  }
  let built = ""
  function build() { // the controls of a tab, once
    const controls = model.get("controls")
    if (built === JSON.stringify(controls)) return
    built = JSON.stringify(controls)
    fields.clear()
    form.replaceChildren(...controls.map((control) => {
      const field = input(control)
      field.name = control.name
      fields.set(control.name, field)
      return element("label", {}, element("span", { textContent: control.label }), field)
    }))
  }
  function show() {
    clearTimeout(timer)
    note.hidden = true
    build()
    const chosen = model.get("chosen")
    for (const [name, field] of fields) field.value = chosen[name]
    picture.innerHTML = model.get("picture") // the kernel has escaped its texts
  }
  model.on("change:answered", show)
  show()
  return {
    el,
    remove() {
      clearTimeout(timer)
      model.off("change:answered", show)
      el.remove()
    },
  }
}

function initialize({ model }) {
  return drawInHosts(model, draw)
}

export default { initialize, render: drawWhere(draw) }
