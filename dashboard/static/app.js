// Refresh, local times, charts, selection, keyboard shortcuts. Without it, pages work but do not refresh.
(() => {
  "use strict";
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
  const remember = (name, value) => { try { localStorage.setItem(name, value); } catch { /* private mode */ } };
  const recall = (name) => { try { return localStorage.getItem(name); } catch { return null; } };

  // --- refresh: not in a hidden tab, not while paused ---
  const choice = $("#refresh");
  const usual = document.body.dataset.refresh.replace(/\.0$/, "");
  let last = Date.now();
  // A page that the browser is leaving must not reload itself: that would cancel the navigation.
  let left = -Infinity;
  addEventListener("beforeunload", () => { left = Date.now(); });
  addEventListener("pageshow", () => { left = -Infinity; });
  const leaving = () => Date.now() - left < 10_000;
  const seconds = () => (choice ? Number(choice.value) : 0);
  const pick = (value) => {
    if (!choice) return;
    if (![...choice.options].some((option) => option.value === value)) choice.add(new Option(`${value} s`, value), 0);
    choice.value = value;
    remember("refresh", value);
  };
  const refresh = () => {
    last = Date.now();
    $$("[hx-trigger='refresh']").forEach((part) => htmx.trigger(part, "refresh"));
  };
  const tick = () => {
    const pause = $("[data-quick='yes']") ? Math.min(1, seconds()) : seconds();
    if (pause && !document.hidden && !leaving() && Date.now() - last >= pause * 1000) refresh();
  };
  const lastChoice = recall("refresh");
  pick(lastChoice !== null && /^\d+$/.test(lastChoice) ? lastChoice : usual);
  choice?.addEventListener("change", () => pick(choice.value));
  document.addEventListener("visibilitychange", () => { if (!document.hidden && seconds()) refresh(); });
  setInterval(tick, 250);

  const offline = (yes) => {
    $("#offline").hidden = !yes;
    if (yes) $("#offline").textContent = `This page could not be refreshed at ${new Date().toLocaleTimeString()}: the dashboard or Redis does not answer. ${seconds() ? `It tries again every ${seconds()} s.` : "Refreshing is paused."} What it shows is outdated.`;
  };
  const countdown = $("[data-countdown]");
  if (countdown) setInterval(() => { countdown.textContent = Math.max(0, Number(countdown.textContent) - 1); }, 1000);
  for (const name of ["htmx:sendError", "htmx:timeout"]) document.body.addEventListener(name, () => offline(true));
  document.body.addEventListener("htmx:afterOnLoad", (event) => offline(event.detail.xhr.status >= 500));
  // If the answer does not contain the requested part (moved or removed), the whole page is reloaded.
  document.body.addEventListener("htmx:beforeSwap", (event) => {
    const { xhr, target } = event.detail;
    if (leaving()) event.detail.shouldSwap = false;
    else if (xhr.status === 404 || (xhr.status === 200 && target.id && !xhr.responseText.includes(`id="${target.id}"`))) {
      event.detail.shouldSwap = false;
      location.reload();
    }
  });

  // --- kept by a refresh: charts, and whatever the user has opened, selected or typed ---
  Object.assign(Idiomorph.defaults.callbacks, {
    beforeNodeMorphed: (old) => !(old.nodeType === 1 && (old.hasAttribute("data-keep") || old === document.activeElement && old.matches("input, textarea, select"))),
    beforeAttributeUpdated: (name, node) => !(name === "open" && node.matches("details") || name === "data-exact" || ["checked", "value"].includes(name) && node.matches("input") || name === "disabled" && node.matches("[data-needs-pick]")),
  });

  // --- times: local, or UTC where the user chose that ---
  const timeZone = recall("zone") === "UTC" ? "UTC" : undefined;
  const zone = $("#zone");
  if (zone) zone.textContent = timeZone ?? "local";
  zone?.addEventListener("click", () => { remember("zone", timeZone ? "local" : "UTC"); location.reload(); });
  const whole = new Intl.DateTimeFormat(undefined, { timeZone, dateStyle: "medium", timeStyle: "long" });
  const clock = new Intl.DateTimeFormat(undefined, { timeZone, month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3, hour12: false });
  const second = new Intl.DateTimeFormat(undefined, { timeZone, month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
  const minute = new Intl.DateTimeFormat(undefined, { timeZone, weekday: "short", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
  const showTimes = () => $$("time[datetime]").forEach((element) => {
    const at = new Date(element.dateTime);
    if (Number.isNaN(at.getTime())) return;
    const title = `${whole.format(at)}\n${at.toISOString()}`;
    if (element.title !== title) element.title = title;
    if (element.classList.contains("at")) element.dataset.exact = second.format(at);
    if (element.classList.contains("clock")) {
      const shown = (element.classList.contains("minute") ? minute : clock).format(at);
      if (element.textContent !== shown) element.textContent = shown;
    }
  });
  const pad = (number) => String(number).padStart(2, "0");
  const local = (at) => timeZone ? at.toISOString().slice(0, 19) : `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}T${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
  $$("input[data-utc]").forEach((input) => {
    const text = input.dataset.utc;
    if (text) {
      const at = new Date(/Z|[+-]\d\d:\d\d$/.test(text) ? text : `${text}Z`);
      if (!Number.isNaN(at.getTime())) input.value = local(at);
    }
  });
  document.addEventListener("formdata", (event) => {
    const inputs = $$("input[data-utc]", event.target);
    for (const input of inputs) if (input.value) event.formData.set(input.name, `${new Date(timeZone ? `${input.value}Z` : input.value).toISOString().slice(0, 19)}Z`);
    if (inputs.length) for (const [name, given] of [...event.formData]) if (given === "") event.formData.delete(name);
  });

  // --- charts ---
  const charts = new Map();
  const colours = { submitted: "--chart-1", completed: "--chart-2", retried: "--chart-3", failed: "--chart-4", executors: "--chart-2", busy: "--chart-1" };
  const hour = new Intl.DateTimeFormat(undefined, { timeZone, hour: "2-digit", minute: "2-digit", hour12: false });
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  let deploys = [];
  // A line for each deploy, with the name of the version at its top.
  const drawDeploys = (chart) => {
    const { ctx, bbox } = chart;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = style("--soft");
    ctx.font = `${11 * devicePixelRatio}px system-ui`;
    ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
    for (const [at, version] of deploys) {
      const x = Math.round(chart.valToPos(at, "x", true));
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.beginPath(); ctx.moveTo(x, bbox.top); ctx.lineTo(x, bbox.top + bbox.height); ctx.stroke();
      ctx.textAlign = x > bbox.left + bbox.width * 0.8 ? "right" : "left";
      ctx.fillText(` ${version.length > 14 ? `${version.slice(0, 13)}…` : version} `, x, bbox.top + 11 * devicePixelRatio);
    }
    ctx.restore();
  };
  const makeChart = (box, names, data) => {
    const axis = { stroke: style("--soft"), grid: { stroke: style("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    return new uPlot({
      hooks: { draw: [drawDeploys] }, width: Math.max(200, box.clientWidth), height: 140, cursor: { y: false, drag: { setScale: false } },
      scales: { y: { range: (_, __, most) => [0, Math.max(4, most * 1.05)] } },
      axes: [{ ...axis, size: 24, values: (_, values) => values.map((at) => hour.format(new Date(at * 1000))) }, { ...axis, size: 44, values: (_, values) => values.map((value) => Number.isInteger(value) ? value.toLocaleString() : "") }],
      series: [{ value: (_, at) => at === null ? "" : hour.format(new Date(at * 1000)), label: "at" },
        ...names.map((name) => ({ label: name, stroke: style(colours[name]), width: 1.8, points: { show: false }, fill: `${style(colours[name])}22` }))],
    }, data, box);
  };
  const showCharts = (anew = false) => {
    const source = $("#chart-data");
    if (!source || typeof uPlot === "undefined") return;
    const all = JSON.parse(source.getAttribute("value"));
    deploys = all.deploys;
    $$(".chart").forEach((box) => {
      const names = box.dataset.series.split(",");
      const data = [all.minute, ...names.map((name) => all[name])];
      const known = charts.get(box);
      if (known && !anew) return known.setData(data);
      known?.destroy();
      charts.set(box, makeChart(box, names, data));
    });
  };
  let resizing;
  addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(() => charts.forEach((chart, box) => chart.setSize({ width: Math.max(200, box.clientWidth), height: 140 })), 150); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => showCharts(true));

  // --- selection ---
  const showPicked = () => {
    const picked = $$(".pick:checked").length;
    $$("[data-needs-pick]").forEach((button) => { button.disabled = !picked; });
    $$(".picked-count").forEach((element) => { element.textContent = picked ? `(${picked})` : ""; });
  };
  document.addEventListener("change", (event) => {
    if (event.target.id === "pick-all") $$(".pick").forEach((box) => { box.checked = event.target.checked; });
    if (event.target.matches("#pick-all, .pick")) showPicked();
  });

  // --- buttons ---
  document.addEventListener("submit", (event) => {
    const question = event.target.dataset.confirm;
    if ((question && !confirm(question)) || event.target.dataset.sent) return event.preventDefault();
    if (event.target.matches(".fields")) event.target.dataset.sent = "yes";
  });
  addEventListener("pageshow", () => $$("[data-sent]").forEach((form) => delete form.dataset.sent));
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy], [data-copy-from]");
    if (!button) return;
    const label = button.textContent;
    try { await navigator.clipboard.writeText(button.dataset.copy ?? await (await fetch(button.dataset.copyFrom)).text()); button.textContent = "Copied"; } catch { button.textContent = "Copy failed"; }
    setTimeout(() => { button.textContent = label; }, 1500);
  });
  const dark = () => { const set = document.documentElement.dataset.theme; return set ? set === "dark" : matchMedia("(prefers-color-scheme: dark)").matches; };
  const switchTheme = () => {
    const next = dark() ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    document.cookie = `theme=${next}; path=/; max-age=31536000; samesite=lax`;
    showCharts(true);
  };
  $("#theme")?.addEventListener("click", switchTheme);
  $("#help")?.addEventListener("click", () => $("#keys").showModal());

  // --- palette: suggestions for a search, and pages ---
  const makePalette = (dialog) => {
    const input = $("input", dialog);
    const list = $("ul", dialog);
    let items = [];
    let chosen = -1;
    let asked = 0;
    const choose = (at) => {
      chosen = items.length ? (at + items.length) % items.length : -1;
      $$("li", list).forEach((line, number) => line.setAttribute("aria-selected", String(number === chosen)));
      if (chosen < 0) input.removeAttribute("aria-activedescendant");
      else { input.setAttribute("aria-activedescendant", `suggestion-${chosen}`); list.children[chosen].scrollIntoView({ block: "nearest" }); }
    };
    const show = (found) => {
      items = found;
      list.replaceChildren(...found.map((item, number) => {
        const line = document.createElement("li");
        Object.assign(line, { id: `suggestion-${number}`, textContent: item.label });
        line.setAttribute("role", "option");
        const count = document.createElement("small");
        count.textContent = [item.count?.toLocaleString("en"), item.note].filter(Boolean).join(" ");
        line.append(" ", count);
        line.addEventListener("click", () => open(item));
        return line;
      }));
      chosen = -1;
      $$("li", list).forEach((line) => line.setAttribute("aria-selected", "false"));
      input.removeAttribute("aria-activedescendant");
    };
    const ask = async () => {
      const number = ++asked;
      try {
        const answer = await fetch(`${root}/suggestions?${new URLSearchParams({ search: input.value })}`);
        const found = answer.ok ? (await answer.json()).items : [];
        if (number === asked) show(found);
      } catch { if (number === asked) show([]); }
    };
    const fill = (text) => { input.value = text; ask(); };
    const open = (item) => { item.path ? go(item.path) : fill(item.search); };
    let timer = 0;
    input.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(ask, 120); });
    input.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown" || event.key === "ArrowUp") choose(chosen + (event.key === "ArrowDown" ? 1 : chosen < 0 ? 0 : -1));
      else if (event.key === "Tab" && items.length && !event.shiftKey) { const item = items[Math.max(0, chosen)]; if (!item.search) return; fill(item.search); }
      else if (event.key === "Enter") chosen >= 0 ? open(items[chosen]) : go(`/tasks?${new URLSearchParams({ search: input.value })}`);
      else return;
      event.preventDefault();
    });
    dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
    return { showAt: (text) => { if (!dialog.open) dialog.showModal(); fill(text); input.select(); } };
  };
  const palette = $("#palette") ? makePalette($("#palette")) : null;
  $("#search")?.addEventListener("click", () => find());

  // --- keyboard ---
  const places = { o: "/", t: "/tasks", y: "/types", d: "/dead-letters", q: "/queues", w: "/workers", s: "/schedules", l: "/locks", a: "/audit" };
  let leader = 0;
  let before = usual;
  const go = (path) => { location.href = root + path; };
  const root = ($("a.brand")?.getAttribute("href") ?? "/").slice(0, -1);  // a proxy may serve the dashboard below a path
  const find = () => palette?.showAt($("#find")?.value ?? "");
  const pause = () => { if (seconds()) { before = choice.value; pick("0"); } else pick(before === "0" ? "5" : before); };
  // Rows of lists: the link in each of them gets the focus.
  const rows = () => $$("main tbody tr, main .cards > section").filter((row) => $("a[href]", row) && row.offsetParent);
  // A refresh may take the focus from it, or put another element in its place.
  let reached;
  const target = (row) => $("a[href]", row).getAttribute("href");
  const row = () => document.activeElement.closest("main tbody tr, main .cards > section") ?? rows().find((each) => target(each) === reached);
  const step = (by) => () => {
    const all = rows();
    const next = all[Math.max(0, Math.min(all.length - 1, row() ? all.indexOf(row()) + by : 0))];
    if (!next) return;
    reached = target(next);
    $("a[href]", next).focus();
    next.scrollIntoView({ block: "nearest" });
  };
  const tickRow = () => row()?.querySelector(".pick")?.click();
  const openRow = () => row() && $("a[href]", row()).click();
  const keys = { j: step(1), k: step(-1), x: tickRow, e: openRow, "?": () => $("#keys").showModal(), "/": find, r: refresh, p: pause, t: switchTheme };
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k" && palette) { event.preventDefault(); find(); return; }
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input:not(.pick), textarea, select") || !$("#keys") || $("#keys").open) return;
    if (event.key === "g") { leader = Date.now(); return; }
    const act = Date.now() - leader < 1200 && places[event.key] ? () => go(places[event.key]) : keys[event.key];
    leader = 0;
    if (act) { event.preventDefault(); act(); }
  });

  const settle = () => { showTimes(); showCharts(); showPicked(); };
  document.body.addEventListener("htmx:afterSettle", settle);
  settle();
})();
