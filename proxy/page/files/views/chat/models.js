// The models that can be asked, in words.
export const LIVE = "default";
export const MOST = 4; // answers to one message

// Returns the models of a list that an upstream may have written.
export function modelsIn(listed) {
  return Array.isArray(listed?.data) ? listed.data.filter((model) => typeof model?.id === "string") : [];
}

// `models`: as of modelsIn. Returns [{id, name}], the live version first.
export function choicesOf(models, live) {
  const ids = models.map(({ id }) => id);
  const serving = live == null ? "" : live === 0 ? " (the base model)" : ` (version ${live})`;
  const named = ids.filter((id) => id !== LIVE && !ids.includes(`${id}@base`)).map((id) => ({ id, name: nameOf(id) }));
  return [{ id: LIVE, name: `Live version${serving}` }, ...named];
}

function nameOf(id) {
  const version = id.match(/@(?:v(\d+)|base)$/);
  if (!version) return id;
  return version[1] ? `Version ${version[1]}` : "Base model";
}

// What can stand beside `model`. While nothing is learnt, the live version and the base model are the same.
export function besides(choices, model, live) {
  const same = (id) => id === model || (live === 0 && [id, model].every((each) => each === LIVE || each.endsWith("@base")));
  return choices.filter(({ id }) => !same(id));
}

// `count` is 1 to MOST, or "beside:<id of another model>". Returns the model of each answer; of two models in random order.
export function asked({ model, count }) {
  if (!String(count).startsWith("beside:")) return Array(Number(count)).fill(model);
  const two = [model, count.slice("beside:".length)];
  return Math.random() < 0.5 ? two : two.reverse();
}
