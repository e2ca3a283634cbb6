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

// Returns the number of a version (0: the base model), or the name of a model that isn't one.
function versionOf(id, live) {
  if (id === LIVE) return live ?? id;
  const version = id.match(/@(?:v(\d+)|base)$/);
  return version ? Number(version[1] ?? 0) : id;
}

function nameOf(id) {
  const version = versionOf(id);
  if (version === id) return id;
  return version ? `Version ${version}` : "Base model";
}

// What can stand beside `model`: the live version isn't shown beside itself.
export function besides(choices, model, live) {
  return choices.filter(({ id }) => versionOf(id, live) !== versionOf(model, live));
}

// What a small model is asked for by default, because it may never stop by itself. 0: any length.
export const LENGTHS = [128, 512, 2048, 0];

// Returns the longest answer in tokens that a model is asked for. `length`: as the person chose it, null: not at all.
export function longest({ length, model }, status) {
  const trained = model === LIVE || versionOf(model) !== model;
  return length ?? ((trained && status?.engine.longest_answer) || 0);
}

// `count` is 1 to MOST, or "beside:<id of another model>". Returns the model of each answer; of two models in random order.
export function asked({ model, count }) {
  if (!String(count).startsWith("beside:")) return Array(Number(count)).fill(model);
  const two = [model, count.slice("beside:".length)];
  return Math.random() < 0.5 ? two : two.reverse();
}
