// The time bar: live, pause, another moment, a range, play.
function seconds(value) {
  return `${value.toFixed(value < 100 ? 2 : value < 10000 ? 1 : 0)} s`
}

function showTime() {
  const end = facts.time_end ?? 0, live = facts.status === "live"
  // An address may name a moment that the run has not reached: the newest one is shown.
  const within = (moment) => moment == null ? null : Math.min(moment, end)
  const at = within(facts.time_at), begin = within(facts.time_since)
  const slider = one(".moment"), bar = one(".timebar")
  bar.hidden = facts.time_end == null
  bar.dataset.past = String(at != null || facts.time_since != null)
  slider.max = end
  slider.step = Math.max(end / 2000, 0.001)
  if (document.activeElement !== slider || at == null || facts.time_playing) slider.value = at ?? end
  one(".moment-track").style.setProperty("--from", `${end ? 100 * Math.min(1, (begin ?? 0) / end) : 0}%`)
  const shown = begin == null ? seconds(at ?? end) : `${seconds(begin)} to ${seconds(at ?? end)}`
  setText(one(".moment-text"), `${shown} of ${seconds(end)}${facts.time_reading ? ", reading\u2026" : ""}`)
  slider.setAttribute("aria-valuetext", shown)
  setText(one(".now"), live ? "Live" : "Whole run")
  one(".now").setAttribute("aria-pressed", String(at == null && begin == null))
  showMarks(facts.time_marks ?? [], end)
  const playing = Boolean(facts.time_playing)
  one(".play").dataset.playing = String(playing || (at == null && live))
  // Not "Pause": that is what stops the training.
  const label = playing ? "Stop playing" : at == null && live ? "Freeze the page" : "Play from here"
  one(".play").setAttribute("aria-label", label)
  one(".play").title = label
  const since = one(".since")
  if (document.activeElement !== since) since.value = begin == null ? "" : String(begin)
}

// Moments to look at, such as those at which a worker was lost.
function showMarks(marks, end) {
  setItems(one(".moment-marks"), marks.map(([at, text]) => ({at, text, end})), ({at, text, end}) => {
    const mark = document.createElement("li")
    mark.title = text
    mark.style.left = `${end ? 100 * Math.min(1, at / end) : 0}%`
    mark.textContent = text
    return mark
  })
}

function playOrPause() {
  const end = facts.time_end ?? 0, at = facts.time_at
  if (facts.time_playing) send({at, speed: null})
  else if (at == null && facts.status === "live") send({at: end, speed: null})
  else {
    const begin = at == null || at >= end ? state.since ?? 0 : at
    send({at: begin, speed: Number(one(".speed").value)})
  }
}

one(".now").addEventListener("click", () => send({at: null, since: null, speed: null}))
one(".play").addEventListener("click", playOrPause)
one(".moment").addEventListener("input", (event) => send({at: Number(event.target.value), speed: null}))
one(".since").addEventListener("change", (event) => {
  const given = event.target.value.trim() === "" ? null : Number(event.target.value)
  const most = state.at ?? facts.time_end ?? 0
  send({since: given == null || !(given >= 0) ? null : Math.min(given, most)})
})
one(".from-here").addEventListener("click", () => send({since: facts.time_at ?? facts.time_end, at: null, speed: null}))
one(".speed").addEventListener("change", () => {
  if (facts.time_playing) send({at: facts.time_at, speed: Number(one(".speed").value)})
})
