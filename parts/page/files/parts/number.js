// Numbers as people read them.
const whole = new Intl.NumberFormat("en");
const rounded = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
/** @type {[string, number][]} */
const SIZES = [
  ["GB", 1e9],
  ["MB", 1e6],
  ["kB", 1e3],
];

export const count = (number) => whole.format(number);

export function bytes(number) {
  const [name, size] = SIZES.find(([, each]) => number >= each) ?? ["bytes", 1];
  return `${rounded.format(number / size)} ${name}`;
}

// "1 answer", "2 answers"
export function counted(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}
