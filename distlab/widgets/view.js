// Draws a run's charts into every element whose class is the model's `host`, and
// follows the model's data. The kernel sends BokehJS with its first view; later pages ask for it,
// once for all of their views.
const ASK_AFTER_MS = 1000, ANSWER_AFTER_MS = 3000
const CLICK_WAITS_MS = 2500
const WAITING =
  "The kernel has not received this click yet. Some front ends deliver clicks only after the cell: " +
  "start the loop with dl.background there, or use the dashboard's buttons."
const libraries = (globalThis.distlabLibraries ??= new Map())

// Resolves to BokehJS of this version: the page's own, or the one that `receive` loads.
function library(version) {
  if (!libraries.has(version)) {
    const entry = { started: false }
    entry.ready = new Promise((resolve, reject) => Object.assign(entry, { resolve, reject }))
    const present = globalThis.Bokeh?.[version]
    if (present) Object.assign(entry, { started: true }).resolve(present)
    libraries.set(version, entry)
  }
  return libraries.get(version)
}

async function receive(entry, version, bytes) {
  if (entry.started) return
  entry.started = true
  try {
    const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))
    const url = URL.createObjectURL(
      new Blob([await new Response(plain).text()], { type: "text/javascript" }))
    await new Promise((resolve, reject) => {
      const script = Object.assign(document.createElement("script"), { src: url })
      script.onload = resolve
      script.onerror = () => reject(new Error("BokehJS could not be loaded into this page"))
      document.head.append(script)
    })
    URL.revokeObjectURL(url)
    entry.resolve(globalThis.Bokeh[version])
  } catch (error) {
    entry.reject(error)
  }
}

function showSummary(words, notes, summary) {
  const mark = element("span", { className: "mark", textContent: summary.status })
  mark.dataset.status = summary.status
  words.replaceChildren(
    element("header", {},
      element("strong", { textContent: summary.name }), mark,
      element("span", { className: "quiet", textContent: summary.steps })),
    element("p", { textContent: summary.sentence }),
    element("div", { className: "amounts" }, ...summary.amounts.map(([name, amount]) =>
      element("span", {}, `${name} `, element("b", { textContent: amount })))))
  const grids = notes.firstElementChild ?? element("div")
  if (grids.drawn !== summary.grids) grids.innerHTML = grids.drawn = summary.grids // escaped by the kernel
  notes.replaceChildren(
    grids, ...summary.notes.map((note) => element("p", { className: "quiet", textContent: note })))
}

// The buttons of loops. A button that moves or is replaced between press and release loses the
// click: a program keeps the same elements, and above and before them nothing grows.
function loopButtons(model, bar) {
  const rows = new Map()
  const waiting = new Map()
  const note = element("p", { className: "quiet", textContent: WAITING, hidden: true })
  note.setAttribute("role", "status")
  bar.append(note)

  function press(loop, verb) {
    const click = crypto.randomUUID?.() ?? String(Math.random())
    waiting.set(click, setTimeout(() => { note.hidden = false }, CLICK_WAITS_MS))
    model.send({ kind: "press", loop, verb, click })
  }
  function add(number) {
    const button = (verb, text) => element("button", {
      type: "button", className: verb, textContent: text, onclick: () => press(number, verb) })
    const row = {
      text: element("span", { className: "told" }),
      pause: button("pause", "Pause"),
      step: button("step", "One step"),
      resume: button("resume", "Resume"),
      stop: button("stop", "Stop"),
    }
    row.el = element("div", { className: "loop" }, row.pause, row.resume, row.step, row.stop, row.text)
    bar.insertBefore(row.el, note)
    rows.set(number, row)
    return row
  }
  function show() {
    const loops = model.get("loops")
    for (const { number, name, state, position } of loops) {
      const row = rows.get(number) ?? add(number)
      row.el.dataset.state = state
      row.text.replaceChildren(
        element("b", { textContent: name }), ` ${state}, ${position} in this loop`)
      row.pause.disabled = state !== "running" && state !== "between loops"
      row.resume.disabled = state !== "paused" && state !== "pausing"
      row.step.disabled = state !== "paused"
      row.stop.disabled = state === "stopping" || state === "stopped"
    }
    for (const [number, row] of rows) {
      if (!loops.some((loop) => loop.number === number)) {
        row.el.remove()
        rows.delete(number)
      }
    }
    if (!loops.length) note.hidden = true
  }
  function heard(content) {
    if (content.kind !== "pressed") return
    clearTimeout(waiting.get(content.click))
    waiting.delete(content.click)
    if (!waiting.size) note.hidden = true
  }
  return { show, heard, end: () => waiting.forEach(clearTimeout) }
}

// One drawing of the model: `el` is put into a page, `remove` ends it.
function draw(model) {
  const words = element("div", { className: "words" })
  const notes = element("div")
  const trouble = element("p", { hidden: true })
  const bar = element("div", { className: "loops" })
  const buttons = loopButtons(model, bar)
  const charts = model.get("charts")
  const places = new Map(charts.map((name) => [name, element("div", { className: `chart ${name}` })]))
  const el = element(
    "div", { className: "distlab-live" }, bar, words, trouble, ...places.values(), notes)
  const drawn = new Map()
  const ends = []
  let removed = false

  const follow = (event, callback) => {
    model.on(event, callback)
    ends.push(() => model.off(event, callback))
  }
  const summarize = () => {
    const summary = model.get("summary")
    if (summary.name) showSummary(words, notes, summary)
  }

  // A chart appears with its first data.
  async function show(Bokeh, name) {
    if (removed || !(name in model.get("items"))) return
    if (!drawn.has(name)) {
      const item = structuredClone(model.get("items")[name])
      drawn.set(name, Bokeh.embed.embed_item(item, places.get(name)).then((manager) => {
        const { document } = manager.roots[0].model
        ends.push(() => {
          manager.clear()
          Bokeh.documents.splice(Bokeh.documents.indexOf(document), 1)
        })
        return document
      }))
    }
    const document = await drawn.get(name)
    if (removed) return void ends.splice(0).forEach((end) => end())
    // Data that arrived while it was being drawn is in the model by now.
    document.apply_json_patch({ events: Object.values(model.get(name)) })
  }
  async function start() {
    const Bokeh = await library(model.get("bokeh_version")).ready
    for (const name of charts) {
      follow(`change:${name}`, () => show(Bokeh, name).catch(fail))
      await show(Bokeh, name)
    }
  }
  function fail(error) {
    console.error(error)
    Object.assign(trouble, { textContent: `No charts here: ${error.message}`, hidden: false })
  }
  const repaint = async () => {
    for (const document of await Promise.all(drawn.values()))
      for (const view of document.views_manager ?? []) repaintAll(view)
  }
  const themes = new MutationObserver(() => requestAnimationFrame(repaint))
  themes.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "class"] })
  const system = matchMedia("(prefers-color-scheme: dark)")
  system.addEventListener("change", repaint)
  ends.push(() => themes.disconnect(), () => system.removeEventListener("change", repaint))

  summarize()
  follow("change:summary", summarize)
  buttons.show()
  follow("change:loops", buttons.show)
  follow("msg:custom", buttons.heard)
  ends.push(buttons.end)
  start().catch(fail)

  return {
    el,
    remove() {
      removed = true
      ends.splice(0).forEach((end) => end())
      el.remove()
    },
  }
}

// Colours of axes and texts come from CSS, which Bokeh reads when it paints.
function repaintAll(view) {
  view.request_repaint?.()
  for (const child of view.child_views ?? []) repaintAll(child)
}

function initialize({ model }) {
  const version = model.get("bokeh_version")
  const entry = library(version)
  const listen = (content, buffers) => {
    if (content.kind === "bokehjs") receive(entry, version, buffers[0])
  }
  model.on("msg:custom", listen)
  const timer = setInterval(() => {
    if (entry.started) clearInterval(timer)
    else if (!(Date.now() - entry.asked < ANSWER_AFTER_MS)) {
      entry.asked = Date.now()
      model.send({ kind: "bokehjs" })
    }
  }, ASK_AFTER_MS)
  const leave = drawInHosts(model, draw)
  return () => {
    clearInterval(timer)
    model.off("msg:custom", listen)
    leave()
  }
}

export default { initialize, render: drawWhere(draw) }
