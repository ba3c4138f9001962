'use strict';
// The page works without this file. It adds: live charts, the theme switch, deep links, and (table.js) live tables.
const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

const DIGITS = [...Array(94).keys()].map((i) => String.fromCharCode(i + 33)).filter((digit) => !'<"\\'.includes(digit)); // base91.py
const bytes = (text) => {
  const digit = new Uint8Array(128), out = new Uint8Array(Math.floor(((text.length >> 1) * 13 + (text.length & 1) * 6) / 8));
  DIGITS.forEach((character, i) => { digit[character.charCodeAt(0)] = i; });
  let word = 0, bits = 0;
  for (let i = 0, o = 0; i < text.length; i += 2) {
    const one = digit[text.charCodeAt(i)], alone = i + 1 === text.length;
    word = alone ? word << 6 | one : word << 13 | one * 91 + digit[text.charCodeAt(i + 1)];
    for (bits += alone ? 6 : 13; bits >= 8; out[o++] = word >> bits & 255) bits -= 8;
    word &= (1 << bits) - 1;
  }
  return out;
};
const packed = {}; // id of a data block → promise of its text
const unpack = (id) => packed[id] ??= new Response(
  new Blob([bytes(document.getElementById(id).textContent)]).stream().pipeThrough(new DecompressionStream('gzip')),
).text();

// Charts: each figure shows its SVG until plotly.js, unpacked on first need, has drawn over it.
let library, figures;
const loadLibrary = () => library ??= unpack('plotly-data').then((source) => {
  const script = document.createElement('script');
  script.textContent = source; // The policy allows it by its hash.
  document.head.append(script);
  if (!window.Plotly) throw new Error('plotly.js was blocked');
});
const loadFigures = () => figures ??= unpack('figures-data').then(JSON.parse);
const isDark = () => (document.documentElement.dataset.theme
  ?? (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light')) === 'dark';
const COLORS = new Set(['color', 'fillcolor']);
const recolored = (value, dark, isColor) => {
  if (Array.isArray(value)) return value.map((each) => recolored(each, dark, isColor));
  if (value && typeof value === 'object') return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, recolored(each, dark, COLORS.has(key))]));
  return isColor && Object.hasOwn(dark, value) ? dark[value] : value;
};
const themed = (spec, dark) => {
  const made = recolored(spec, isDark() ? dark : {}, false);
  const style = getComputedStyle(document.body);
  made.layout.font.color = style.color;
  made.layout.hoverlabel = { ...made.layout.hoverlabel, bgcolor: style.backgroundColor, font: { color: style.color } };
  return made;
};
const decoded = (html) => new DOMParser().parseFromString(html, 'text/html').documentElement.textContent;
const encoded = (text) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
const NARROW = 440; // Pixels; below, names get no more than a third, and axes fewer ticks.
const ruler = document.createElement('canvas').getContext('2d');
const fitted = (text, room) => { // As much of a text as is no wider than so many pixels, its middle left out.
  let length = text.length, shown = text;
  while (length > 4 && ruler.measureText(shown).width > room) {
    const head = Math.floor(--length * 2 / 3);
    shown = `${text.slice(0, head)}…${text.slice(head - length)}`;
  }
  return shown;
};
const narrowed = (spec, width) => {
  const { margin, xaxis, yaxis } = spec.layout;
  margin.l = Math.min(margin.l, Math.round(width * 0.36));
  xaxis.nticks = 4;
  if (xaxis.ticktext?.length > 6) xaxis.ticktext = xaxis.ticktext.map((text, i) => (i % 2 ? '' : text));
  ruler.font = `${spec.layout.font.size}px ${spec.layout.font.family}`;
  yaxis.ticktext = yaxis.ticktext?.map((text) => encoded(fitted(decoded(text), margin.l - 16)));
};
const config = (name) => ({
  responsive: true, displaylogo: false, showSendToCloud: false, plotlyServerURL: '', displayModeBar: matchMedia('(hover: hover)').matches && 'hover',
  modeBarButtonsToRemove: ['select2d', 'lasso2d', 'autoScale2d'], toImageButtonOptions: { filename: name },
});
// Series as buttons that hide and show them.
const legendOf = (plot, spec) => {
  const names = [...new Set(spec.data.map((trace) => trace.legendgroup).filter(Boolean))];
  if (!names.length) return null;
  const legend = document.createElement('div');
  legend.className = 'legend';
  legend.append(...names.map((name) => {
    const traces = spec.data.flatMap((trace, i) => (trace.legendgroup === name ? [i] : []));
    const { marker, line, fillcolor } = spec.data[traces.at(-1)];
    const button = document.createElement('button'), swatch = document.createElement('i');
    swatch.style.background = fillcolor ?? marker?.color ?? line?.color;
    button.type = 'button';
    button.ariaPressed = 'true';
    button.append(swatch, decoded(name));
    button.addEventListener('click', () => {
      const shown = button.ariaPressed !== 'true';
      button.ariaPressed = String(shown);
      Plotly.restyle(plot, { visible: shown }, traces);
    });
    return button;
  }));
  return legend;
};
const draw = async (figure) => {
  try {
    const [all] = await Promise.all([loadFigures(), loadLibrary()]);
    const base = all.figures[figure.id], still = $('.static', figure);
    const width = still.clientWidth, { height } = $('svg', still).getBoundingClientRect();
    if (width < NARROW) narrowed(base, width);
    const plot = document.createElement('div');
    plot.className = 'plot';
    still.after(plot);
    const legend = legendOf(plot, themed(base, all.dark));
    if (legend) plot.before(legend);
    figure.classList.add('live');
    // As high as the picture that it replaces, so that nothing jumps; on a phone that one is small.
    const above = legend?.offsetHeight ?? 0;
    if (width >= NARROW) base.layout.height = Math.max(110, Math.round(height - above));
    plot.style.height = `${base.layout.height}px`;
    plot.style.setProperty('--up', `${-26 - above}px`); // The tool bar stands beside the title.
    const spec = themed(base, all.dark);
    await Plotly.newPlot(plot, spec.data, spec.layout, config(figure.id));
  } catch (error) { // The static picture stays.
    for (const part of $$('.plot, .legend', figure)) part.remove();
    figure.classList.remove('live');
    figure.dataset.error = String(error);
  }
};
const redraw = async () => {
  if (!figures) return;
  const all = await figures;
  for (const figure of $$('figure.live')) {
    const spec = themed(all.figures[figure.id], all.dark), plot = $('.plot', figure), legend = $('.legend', figure);
    await Plotly.react(plot, spec.data, spec.layout);
    legend?.replaceWith(legendOf(plot, spec));
  }
};
if ('DecompressionStream' in window && 'IntersectionObserver' in window) {
  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      watch.unobserve(entry.target);
      draw(entry.target);
    }
  }, { rootMargin: '200px' });
  for (const figure of $$('figure.zoomable')) watch.observe(figure);
}

// Theme
$('#theme').addEventListener('click', () => {
  document.documentElement.dataset.theme = isDark() ? 'light' : 'dark';
  redraw();
});
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);

const reveal = (target, block = 'start') => {
  for (let node = target; node; node = node.parentElement) if (node.tagName === 'DETAILS') node.open = true;
  target?.scrollIntoView({ block });
};
// The place in the page stands out in its contents.
const places = new Map($$('nav a').map((link) => [document.getElementById(link.hash.slice(1)), link]));
if ('IntersectionObserver' in window) {
  const seen = new Set();
  const spy = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) seen[isIntersecting ? 'add' : 'delete'](target);
    const here = [...places].filter(([place]) => seen.has(place)).at(-1)?.[1];
    if (!here) return;
    for (const link of places.values()) link.removeAttribute('aria-current');
    here.setAttribute('aria-current', 'location');
  }, { rootMargin: '-10% 0px -80%' });
  for (const place of places.keys()) if (place) spy.observe(place);
}

// A deep link opens what it points into.
const open = () => {
  let id = location.hash.slice(1);
  try { id = decodeURIComponent(id); } catch { /* Not written by this page: it leads nowhere. */ }
  if (!id) return;
  if (id.startsWith('kernel-')) showKernel(id); else reveal(document.getElementById(id));
};
addEventListener('hashchange', open);
addEventListener('DOMContentLoaded', open);

// Findings are printed whole. Where that cannot be done by style alone, they are opened meanwhile.
let shut = [];
addEventListener('beforeprint', () => {
  shut = $$('details.finding:not([open])');
  for (const details of shut) details.open = true;
});
addEventListener('afterprint', () => { for (const details of shut) details.open = false; });
