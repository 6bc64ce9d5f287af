"use strict";
(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const themeButton = document.getElementById("theme");
  // The mode bar covers the legend, needs a mouse, and offers to upload the data.
  const config = { responsive: true, displayModeBar: false };
  // On touch screens a touch scrolls the page, so it must not zoom the plot.
  const dragmode = matchMedia("(pointer: coarse)").matches ? false : "zoom";
  let chosenTheme = null; // null: as the system

  // Colors are defined in the style sheet; plotly needs their computed values.
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

  const colorPaths = ["line.color", "marker.color", "error_x.color", "error_y.color"];

  function setPath(target, path, value) {
    const keys = path.split(".");
    const last = keys.pop();
    keys.reduce((inner, key) => (inner[key] ??= {}), target)[last] = value;
  }

  function draw(panel) {
    for (const [path, color] of Object.entries(layoutColors())) setPath(panel.layout, path, color);
    for (const [trace, color] of lineColors(panel)) {
      for (const path of colorPaths) {
        if (panel.data[trace][path.split(".")[0]]) setPath(panel.data[trace], path, color);
      }
    }
    setPath(panel.layout, "dragmode", dragmode);
    Plotly.newPlot(panel.graph, panel.data, panel.layout, config);
  }

  function repaint() {
    themeButton.setAttribute("aria-pressed", isDark());
    for (const figure of figures) {
      for (const panel of figure.panels) {
        const lines = lineColors(panel);
        const colors = lines.map(([, color]) => color);
        if (lines.length === 0) {
          Plotly.relayout(panel.graph, layoutColors());
          continue;
        }
        const style = Object.fromEntries(colorPaths.map((path) => [path, colors]));
        Plotly.update(panel.graph, style, layoutColors(), lines.map(([trace]) => trace));
      }
    }
  }

  function isDark() {
    return chosenTheme === null ? dark.matches : chosenTheme === "dark";
  }

  function setTheme(theme) {
    chosenTheme = theme;
    if (theme === null) delete root.dataset.theme;
    else root.dataset.theme = theme;
    repaint();
  }

  function setVisible(figure, line, visible) {
    figure.hidden[line] = !visible;
    const toggle = figure.section.querySelector(`button.line-toggle[data-line="${line}"]`);
    toggle.setAttribute("aria-pressed", visible);
    for (const panel of figure.panels) {
      const traces = panel.lines.flatMap((other, trace) => (other === line ? [trace] : []));
      if (traces.length > 0) {
        Plotly.restyle(panel.graph, { visible: visible ? true : "legendonly" }, traces);
      }
    }
  }

  // The legend of plotly hides lines of one panel; update the buttons and the other panels.
  function followLegend(figure, panel) {
    panel.lines.forEach((line, trace) => {
      const visible = panel.graph.data[trace].visible !== "legendonly";
      if (line !== null && figure.hidden[line] === visible) setVisible(figure, line, visible);
    });
  }

  function switchScale(panel, pressed) {
    const axis = `${pressed.dataset.axis}axis`;
    const scale = pressed.getAttribute("aria-pressed") === "true" ? "linear" : "log";
    pressed.setAttribute("aria-pressed", scale === "log");
    // Custom ticks are for the original scale only.
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
    figure.hidden = [...figure.section.querySelectorAll("button.line-toggle")].map(() => false);
    figure.panels.forEach((panel, index) => {
      panel.graph = figure.section.querySelector(`.graph[data-panel="${index}"]`);
      prepare(panel);
      draw(panel);
      panel.graph.on("plotly_restyle", ([change]) => "visible" in change && followLegend(figure, panel));
    });
    for (const toggle of figure.section.querySelectorAll("button.line-toggle")) {
      const line = Number(toggle.dataset.line);
      toggle.addEventListener("click", () => setVisible(figure, line, figure.hidden[line]));
    }
    for (const toggle of figure.section.querySelectorAll("button.scale")) {
      const panel = figure.panels[Number(toggle.dataset.panel)];
      toggle.addEventListener("click", () => switchScale(panel, toggle));
    }
    for (const button of figure.section.querySelectorAll("button.save")) {
      const index = Number(button.dataset.panel);
      const filename = `${figure.anchor}-${index + 1}`;
      button.addEventListener("click", () => saveImage(figure.panels[index], filename));
    }
  }

  function startFilters() {
    const buttons = [...document.querySelectorAll("button.filter")];
    for (const pressed of buttons) {
      pressed.addEventListener("click", () => {
        for (const other of buttons) other.setAttribute("aria-pressed", other === pressed);
        const verdict = pressed.dataset.verdict;
        for (const row of document.querySelectorAll("tr[data-verdict]")) {
          row.hidden = verdict !== "" && row.dataset.verdict !== verdict;
        }
      });
    }
  }

  function forEachGraph(change) {
    for (const figure of figures) for (const panel of figure.panels) change(panel.graph);
  }

  let themeBeforePrint = null;

  // Paper is light, and narrower than most windows.
  function prepareForPrint() {
    themeBeforePrint = chosenTheme;
    setTheme("light");
    forEachGraph((graph) => {
      const columns = getComputedStyle(graph.closest(".panels")).getPropertyValue("--columns");
      Plotly.relayout(graph, { width: Number(columns) > 1 ? 330 : 660 });
    });
  }

  function restoreAfterPrint() {
    setTheme(themeBeforePrint);
    forEachGraph((graph) => {
      Plotly.relayout(graph, { width: null, autosize: true });
      Plotly.Plots.resize(graph);
    });
  }

  figures.forEach(start);
  startFilters();
  themeButton.setAttribute("aria-pressed", isDark());
  themeButton.addEventListener("click", () => setTheme(isDark() ? "light" : "dark"));
  dark.addEventListener("change", () => chosenTheme === null && repaint());
  addEventListener("beforeprint", prepareForPrint);
  addEventListener("afterprint", restoreAfterPrint);
})();
