// Sorts the table of runs by a click on a column's head; without scripts it stays newest first.
const body = document.querySelector('#runs tbody');
const heads = [...document.querySelectorAll('#runs th')];
const collator = new Intl.Collator('en', { numeric: true });
const compare = (a, b, isText) => {
  if (a === '' || b === '') return (a === '') - (b === '');
  return isText ? collator.compare(a, b) : a - b;
};
heads.forEach((head, column) => {
  const button = document.createElement('button');
  button.type = 'button';
  button.textContent = head.textContent;
  head.replaceChildren(button);
  button.addEventListener('click', () => {
    const down = head.getAttribute('aria-sort') !== 'descending';
    for (const each of heads) each.removeAttribute('aria-sort');
    head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
    const isText = button.textContent === 'Report';
    const rows = [...body.rows].map((row) => [row.cells[column].dataset.v, row]);
    rows.sort(([a], [b]) => (a === '' || b === '' || !down ? 1 : -1) * compare(a, b, isText)); // What has no value comes last.
    body.replaceChildren(...rows.map(([, row]) => row));
  });
});
