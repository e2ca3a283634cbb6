// Which words two texts don't share: the longest common subsequence of their words.
const MOST_CELLS = 1_500_000; // of the table below: 1,200 words on each side, some 40 ms on a busy machine
// With the blanks behind it, which don't count. Chinese and Japanese have no blanks: each character is a word.
const WORD = /(?:[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}]|[\p{L}\p{N}_'’]+|[^\s\p{L}\p{N}_'’])\s*|\s+/gu;

// Returns [left, right], each a list of {text, own}; `own`: the other text doesn't have it there. null: too long.
export function wordDiff(left, right) {
  const said = [left, right].map((text) => text.match(WORD) ?? []);
  const [a, b] = said.map((words) => words.map((word) => word.trimEnd()));
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a.at(-1 - end) === b.at(-1 - end)) end++;
  const own = common(a.slice(start, a.length - end), b.slice(start, b.length - end));
  if (!own) return null;
  return said.map((words, side) => runs(words, start, own[side]));
}

// Returns two lists: whether each word is its text's own.
function common(a, b) {
  const width = b.length + 1;
  if ((a.length + 1) * width > MOST_CELLS) return null;
  const longest = new Uint16Array((a.length + 1) * width); // of the words from (i, j) on
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      const at = i * width + j;
      longest[at] = a[i] === b[j] ? longest[at + width + 1] + 1 : Math.max(longest[at + width], longest[at + 1]);
    }
  }
  const own = [new Array(a.length).fill(true), new Array(b.length).fill(true)];
  for (let i = 0, j = 0; i < a.length && j < b.length; ) {
    const at = i * width + j;
    if (a[i] === b[j]) own[0][i++] = own[1][j++] = false;
    else if (longest[at + width] >= longest[at + 1]) i++;
    else j++;
  }
  return own;
}

function runs(words, start, own) {
  const found = [];
  words.forEach((text, index) => {
    const isOwn = own[index - start] ?? false;
    const last = found.at(-1);
    if (last?.own === isOwn) last.text += text;
    else found.push({ text, own: isOwn });
  });
  const parts = found.flatMap(({ text, own: isOwn }) => {
    const said = isOwn ? text.trimEnd() : ""; // the blanks behind it are nobody's own
    return [
      { text: said, own: true },
      { text: text.slice(said.length), own: false },
    ];
  });
  return parts.filter(({ text }) => text);
}
