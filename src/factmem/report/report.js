"use strict";
(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const button = document.getElementById("theme");
  // Plotly's own bar covers the legend, is for mice only, and offers to send data away.
  const config = { responsive: true, displayModeBar: false };
  // Where fingers scroll, a touch on a plot must not zoom.
  const dragmode = matchMedia("(pointer: coarse)").matches ? false : "zoom";
  let chosen = null;

  // The style sheet owns all colors; plotly needs them as numbers.
  function colorOf(name) {
    const probe = document.createElement("span");
    probe.style.color = `var(--${name})`;
    root.append(probe);
    const color = getComputedStyle(probe).color;
    probe.remove();
    return color;
  }

  function layoutColors() {
    const [ink, paper, rule, faint] = ["ink", "paper", "rule", "faint"].map(colorOf);
    const colors = {
      "font.color": ink,
      "paper_bgcolor": paper,
      "plot_bgcolor": paper,
      "hoverlabel.bgcolor": paper,
      "hoverlabel.bordercolor": rule,
      "hoverlabel.font.color": ink,
    };
    for (const axis of ["xaxis", "yaxis"]) {
      colors[`${axis}.gridcolor`] = faint;
      colors[`${axis}.linecolor`] = rule;
      colors[`${axis}.tickcolor`] = rule;
    }
    return colors;
  }

  function lineColors(panel) {
    return panel.colors.flatMap((name, trace) => (name === null ? [] : [[trace, colorOf(name)]]));
  }

  const painted = ["line.color", "marker.color", "error_y.color"];

  function put(target, path, value) {
    const keys = path.split(".");
    const last = keys.pop();
    keys.reduce((inner, key) => (inner[key] ??= {}), target)[last] = value;
  }

  function draw(panel) {
    for (const [path, color] of Object.entries(layoutColors())) put(panel.layout, path, color);
    for (const [trace, color] of lineColors(panel)) {
      for (const path of painted) {
        if (panel.data[trace][path.split(".")[0]]) put(panel.data[trace], path, color);
      }
    }
    put(panel.layout, "dragmode", dragmode);
    Plotly.newPlot(panel.graph, panel.data, panel.layout, config);
  }

  function repaint() {
    button.setAttribute("aria-pressed", isDark());
    for (const figure of figures) {
      for (const panel of figure.panels) {
        const lines = lineColors(panel);
        const colors = lines.map(([, color]) => color);
        if (lines.length === 0) {
          Plotly.relayout(panel.graph, layoutColors());
          continue;
        }
        const style = Object.fromEntries(painted.map((path) => [path, colors]));
        Plotly.update(panel.graph, style, layoutColors(), lines.map(([trace]) => trace));
      }
    }
  }

  function isDark() {
    return chosen === null ? dark.matches : chosen === "dark";
  }

  function choose(theme) {
    chosen = theme;
    if (theme === null) delete root.dataset.theme;
    else root.dataset.theme = theme;
    repaint();
  }

  function showLine(figure, line, shown) {
    figure.hidden[line] = !shown;
    const named = figure.section.querySelector(`button.choice[data-line="${line}"]`);
    named.setAttribute("aria-pressed", shown);
    for (const panel of figure.panels) {
      const traces = panel.lines.flatMap((each, trace) => (each === line ? [trace] : []));
      if (traces.length > 0) {
        Plotly.restyle(panel.graph, { visible: shown ? true : "legendonly" }, traces);
      }
    }
  }

  const toggle = (figure, line) => showLine(figure, line, figure.hidden[line]);

  // Plotly's own legend hides lines of one panel: the buttons and the other panels follow.
  function follow(figure, panel) {
    panel.lines.forEach((line, trace) => {
      const shown = panel.graph.data[trace].visible !== "legendonly";
      if (line !== null && figure.hidden[line] === shown) showLine(figure, line, shown);
    });
  }

  function switchScale(panel, pressed) {
    const axis = `${pressed.dataset.axis}axis`;
    const scale = pressed.getAttribute("aria-pressed") === "true" ? "linear" : "log";
    pressed.setAttribute("aria-pressed", scale === "log");
    // Chosen ticks suit the scale that they were chosen for.
    const ticks = panel.ticks[axis] && scale === panel.scales[axis] ? "array" : "auto";
    Plotly.relayout(panel.graph, {
      [`${axis}.type`]: scale,
      [`${axis}.tickmode`]: ticks,
      [`${axis}.nticks`]: scale === "log" ? 4 : 0,
      [`${axis}.autorange`]: true,
    });
  }

  function saveImage(panel, filename) {
    const { width, height } = panel.graph.getBoundingClientRect();
    Plotly.downloadImage(panel.graph, { format: "png", scale: 2, width, height, filename });
  }

  function prepare(panel) {
    panel.scales = {};
    panel.ticks = {};
    for (const axis of ["xaxis", "yaxis"]) {
      panel.scales[axis] = panel.layout[axis].type;
      panel.ticks[axis] = "tickvals" in panel.layout[axis];
    }
  }

  function start(figure) {
    figure.section = document.querySelector(`[data-figure="${figure.anchor}"]`);
    figure.hidden = [...figure.section.querySelectorAll("button.choice")].map(() => false);
    figure.panels.forEach((panel, place) => {
      panel.graph = figure.section.querySelector(`.graph[data-panel="${place}"]`);
      prepare(panel);
      draw(panel);
      panel.graph.on("plotly_restyle", ([change]) => "visible" in change && follow(figure, panel));
    });
    for (const each of figure.section.querySelectorAll("button.choice")) {
      each.addEventListener("click", () => toggle(figure, Number(each.dataset.line)));
    }
    for (const each of figure.section.querySelectorAll("button.scale")) {
      const panel = figure.panels[Number(each.dataset.panel)];
      each.addEventListener("click", () => switchScale(panel, each));
    }
    for (const each of figure.section.querySelectorAll("button.save")) {
      const place = Number(each.dataset.panel);
      const filename = `${figure.anchor}-${place + 1}`;
      each.addEventListener("click", () => saveImage(figure.panels[place], filename));
    }
  }

  function startFilters() {
    const buttons = [...document.querySelectorAll("button.filter")];
    for (const pressed of buttons) {
      pressed.addEventListener("click", () => {
        for (const each of buttons) each.setAttribute("aria-pressed", each === pressed);
        const wanted = pressed.dataset.verdict;
        for (const row of document.querySelectorAll("tr[data-verdict]")) {
          row.hidden = wanted !== "" && row.dataset.verdict !== wanted;
        }
      });
    }
  }

  function everyGraph(change) {
    for (const figure of figures) for (const panel of figure.panels) change(panel.graph);
  }

  let beforePrinting = null;

  // Paper is light, and narrower than most windows.
  function toPaper() {
    beforePrinting = chosen;
    choose("light");
    everyGraph((graph) => {
      const columns = getComputedStyle(graph.closest(".panels")).getPropertyValue("--columns");
      Plotly.relayout(graph, { width: Number(columns) > 1 ? 330 : 660 });
    });
  }

  function fromPaper() {
    choose(beforePrinting);
    everyGraph((graph) => {
      Plotly.relayout(graph, { width: null, autosize: true });
      Plotly.Plots.resize(graph);
    });
  }

  figures.forEach(start);
  startFilters();
  button.setAttribute("aria-pressed", isDark());
  button.addEventListener("click", () => choose(isDark() ? "light" : "dark"));
  dark.addEventListener("change", () => chosen === null && repaint());
  addEventListener("beforeprint", toPaper);
  addEventListener("afterprint", fromPaper);
})();
