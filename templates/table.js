// Tables: the same numbers and words as htareport/render/format.py, then sort, search, filter, more rows, CSV.
const NNBSP = '\u202f', MISSING = '–';
const SCALES = {
  ns: [[1e9, 1e9, 's'], [1e6, 1e6, 'ms'], [1e3, 1e3, 'µs'], [0, 1, 'ns']],
  bytes: [[2 ** 40, 2 ** 40, 'TiB'], [2 ** 30, 2 ** 30, 'GiB'], [2 ** 20, 2 ** 20, 'MiB'], [2 ** 10, 2 ** 10, 'KiB'], [0, 1, 'B']],
  flop: [[1e12, 1e12, 'TFLOP'], [1e9, 1e9, 'GFLOP'], [1e6, 1e6, 'MFLOP'], [1e3, 1e3, 'kFLOP'], [0, 1, 'FLOP']],
  'flop/s': [[1e11, 1e12, 'TFLOP/s'], [1e8, 1e9, 'GFLOP/s'], [1e6, 1e6, 'MFLOP/s'], [0, 1, 'FLOP/s']],
  'bytes/s': [[1e8, 1e9, 'GB/s'], [1e6, 1e6, 'MB/s'], [1e3, 1e3, 'kB/s'], [0, 1, 'B/s']],
};
const IDS = ['id', 'rank', 'step'];
const CSV_UNITS = { ns: 'ns', bytes: 'bytes', ratio: 'ratio', 'bytes/s': 'bytes/s', flop: 'FLOP', 'flop/s': 'FLOP/s' };
const fixed = (value, decimals) => value.toLocaleString('en-US', { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
const rounded = (value) => (Math.abs(value) >= 1000 ? Math.round(value) : Number(value.toPrecision(3)));
const digits = (value, plain) => {
  value = rounded(value);
  const size = Math.abs(value);
  if (size >= 1e15) return Number(value.toPrecision(3)).toExponential();
  if (size >= 100) return fixed(value, 0);
  if (plain || size < 1) return size && size < 1e-4 ? value.toExponential(1).replace(/e-(\d)$/, 'e-0$1') : String(value);
  return fixed(value, size >= 10 ? 1 : 2);
};
const percent = (value) => {
  if (value && Math.abs(value) < 0.005) return value > 0 ? '<0.01' : '<-0.01';
  value = rounded(value);
  if (Math.abs(value) >= 1e15) return Number(value.toPrecision(3)).toExponential();
  return fixed(value, Math.abs(value) >= 100 || !value ? 0 : Math.abs(value) >= 10 ? 1 : 2);
};
const quantity = (value, unit) => {
  if (IDS.includes(unit)) return unit === 'id' ? String(value) : `${unit} ${value}`;
  if (unit === 'count') return Number.isInteger(value) && Math.abs(value) < 1e15 ? fixed(value, 0) : digits(value, true);
  if (unit === 'number') return digits(value, false);
  if (unit === 'ratio') return `${percent(100 * value)}${NNBSP}%`;
  const size = Math.max(Math.abs(value), Math.abs(Number(value.toPrecision(3)))); // 2 ** 30 is 1.07e9, and a GiB.
  const [, factor, symbol] = SCALES[unit].find(([threshold]) => size >= threshold);
  return `${digits(value / factor, factor === 1)}${NNBSP}${symbol}`;
};
const shown = (value, unit) => {
  if (value === null) return MISSING;
  if (typeof value !== 'number' || unit === 'text' || unit === 'name') return String(value);
  if (unit[0] === '+') return (value > 0 ? '+' : '') + shown(value, unit.slice(1)); // A change.
  return quantity(value, unit).replaceAll('-', '\u2212');
};

const element = (tag, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children); // Strings become text nodes: names are never parsed.
  return made;
};
const full = (value) => (Array.isArray(value) ? value[0] : value);
const CRC = Uint32Array.from({ length: 256 }, (_, n) => {
  for (let k = 0; k < 8; k++) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
  return n;
});
const anchorOf = (name) => { // CRC-32, as in htareport/render/tables.py
  let sum = -1;
  for (const byte of new TextEncoder().encode(name)) sum = CRC[(sum ^ byte) & 255] ^ (sum >>> 8);
  return `kernel-${((sum ^ -1) >>> 0).toString(16).padStart(8, '0')}`;
};
const nameOf = (full, label) => element('details', {}, element('summary', { textContent: label }), element('code', { textContent: full }));
const cellOf = (value, unit) => {
  if (Array.isArray(value) && value[0].trim()) return element('td', { className: 'k' }, nameOf(...value));
  const cell = element('td', { textContent: Array.isArray(value) ? value[1] : shown(value, unit) });
  if (unit === 'name') cell.className = 'k';
  if (unit === 'text') cell.className = cell.textContent.length > 40 ? 'w' : 't';
  if (unit === 'ratio' && typeof value === 'number' && value >= 0 && value <= 1) {
    cell.className = 'r';
    cell.style.setProperty('--v', value.toFixed(3));
  }
  return cell;
};
const csvCell = (value) => {
  let text = value === null ? '' : String(value);
  if (/^[=+\-@\t\r]/.test(text) && typeof value !== 'number') text = `'${text}`;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};
const collator = new Intl.Collator('en', { numeric: true });
const owner = {}; // anchor → the table whose row has it

class LiveTable {
  constructor(root) {
    this.root = root;
    this.body = $('tbody', root);
    this.heads = $$('th', root);
    this.units = this.heads.map((head) => head.dataset.unit);
    this.total = Number(root.dataset.rows);
    this.limit = 20;
    this.query = this.choice = '';
    this.column = -1;
    this.sign = 1;
    for (const one of $$('[id]', this.body)) owner[one.id] = this;
    for (const head of this.heads) head.replaceChildren(element('button', { type: 'button' }, ...head.childNodes));
    this.listen();
    this.say(Math.min(this.limit, this.body.rows.length), this.total); // Long names leave room for fewer rows as markup.
  }

  listen() {
    const on = (selector, event, act) => $(selector, this.root)?.addEventListener(event, async (e) => {
      await this.load();
      act(e);
    });
    on('input', 'input', (e) => { this.query = e.target.value.trim().toLowerCase(); this.show(); });
    on('select', 'change', (e) => { this.choice = e.target.value; this.show(); });
    on('.more', 'click', () => { this.limit += 200; this.show(); });
    on('.csv', 'click', () => this.save());
    this.heads.forEach((head, i) => $('button', head)?.addEventListener('click', async () => {
      await this.load();
      this.sort(i);
    }));
  }

  async load() {
    this.rows ??= JSON.parse(await unpack(`${this.root.id}-data`));
  }

  get nameColumn() {
    return this.heads.findIndex((head) => head.dataset.unit === 'name' && head.dataset.key === '1');
  }

  words(row) {
    return row.map(full).filter((value) => typeof value === 'string').join('\n').toLowerCase();
  }

  hits() {
    const place = Number($('select', this.root)?.dataset.column ?? -1);
    const rows = this.rows.filter((row) => (!this.choice || full(row[place]) === this.choice)
      && (!this.query || this.words(row).includes(this.query) || row.some((value, i) => typeof value === 'number' && IDS.includes(this.units[i]) && String(value) === this.query)));
    if (this.column < 0) return rows;
    const at = (row) => full(row[this.column]);
    return rows.sort((a, b) => {
      const [x, y] = [at(a), at(b)];
      if (x === null || y === null) return (x === null) - (y === null); // What is missing stays last.
      return this.sign * (typeof x === 'number' && typeof y === 'number' ? x - y : collator.compare(x, y));
    });
  }

  sort(column) {
    const isText = ['text', 'name', ...IDS].includes(this.units[column]);
    this.sign = this.column === column ? -this.sign : isText ? 1 : -1;
    this.column = column;
    for (const head of this.heads) head.removeAttribute('aria-sort');
    this.heads[column].setAttribute('aria-sort', this.sign > 0 ? 'ascending' : 'descending');
    this.show();
  }

  rowOf(values) {
    const row = element('tr', {}, ...values.map((value, i) => cellOf(value, this.units[i])));
    const name = this.nameColumn;
    if (name < 0 || values[name] === null) return row;
    const id = anchorOf(full(values[name]));
    if ((owner[id] ??= this) === this && !this.used.has(id)) row.id = id;
    this.used.add(id);
    return row;
  }

  show() {
    const hits = this.hits();
    this.used = new Set();
    this.body.classList.add('all');
    this.body.replaceChildren(...hits.slice(0, this.limit).map((values) => this.rowOf(values)));
    addCopyButtons(this.body);
    this.say(Math.min(this.limit, hits.length), hits.length);
  }

  say(some, all) {
    const status = $('.count', this.root), more = $('.more', this.root), printed = $('.printed', this.root);
    if (status) status.textContent = some === all ? `${fixed(all, 0)} ${all === 1 ? 'row' : 'rows'}` : `${fixed(some, 0)} of ${fixed(all, 0)} rows`;
    if (more) more.hidden = some >= all;
    const onPaper = Math.min(30, this.body.rows.length);
    if (printed) printed.textContent = onPaper < all ? `Printed: the first ${onPaper} of ${fixed(all, 0)} rows.` : '';
  }

  save() {
    const head = this.heads.map((th) => {
      const unit = CSV_UNITS[th.dataset.unit.replace('+', '')], label = th.textContent.trim().replaceAll('\u00a0', ' ');
      return csvCell(unit ? `${label} (${unit})` : label);
    });
    const lines = this.hits().map((row) => row.map((value) => csvCell(full(value))).join(','));
    const blob = new Blob(['\ufeff', [head.join(','), ...lines, ''].join('\r\n')], { type: 'text/csv' });
    const link = element('a', { href: URL.createObjectURL(blob), download: `${this.root.id.slice(6)}.csv` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  async reveal(id) { // Whether a row with this name is here, now shown.
    const columns = this.units.flatMap((unit, i) => (unit === 'name' ? [i] : []));
    if (!columns.length) return false;
    await this.load();
    this.query = this.choice = '';
    const place = this.hits().findIndex((row) => columns.some((i) => row[i] !== null && anchorOf(full(row[i])) === id));
    if (place < 0) return false;
    this.limit = Math.max(this.limit, place + 10);
    this.show();
    const row = this.body.children[place];
    row.classList.add('hit');
    reveal(row, 'center');
    return true;
  }
}

const copyButton = (code) => {
  const button = element('button', { className: 'copy', type: 'button', textContent: 'Copy' });
  button.addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = 'Copied';
    } catch { // No clipboard here: select it, so that one key copies it.
      getSelection().selectAllChildren(code);
    }
  });
  return button;
};
const addCopyButtons = (root) => {
  for (const details of $$('td.k details', root)) {
    details.addEventListener('toggle', () => {
      if (!$('.copy', details)) details.append(copyButton($('code', details)));
    });
  }
};
const liveTables = 'DecompressionStream' in window
  ? $$('.tbl').filter((root) => document.getElementById(`${root.id}-data`)).map((root) => new LiveTable(root)) : [];
addCopyButtons(document);
for (const snippet of $$('.snippet')) snippet.append(copyButton($('code', snippet)));
const showKernel = async (id) => {
  const known = owner[id] ? [owner[id]] : liveTables;
  for (const table of known) if (await table.reveal(id)) return;
  reveal(document.getElementById(id), 'center'); // In a table that is whole as it stands.
};
// A name that stands elsewhere on the page in full opens here all the same.
document.addEventListener('click', (event) => {
  const link = event.target.closest('td.k a');
  const name = link && $$(`#${link.hash.slice(1)} code`).map((code) => code.textContent).find((text) => `#${anchorOf(text)}` === link.hash);
  if (!name) return;
  event.preventDefault();
  const cell = link.parentElement, details = nameOf(name, link.textContent);
  link.replaceWith(details);
  addCopyButtons(cell);
  details.open = true;
  $('summary', details).focus();
});
