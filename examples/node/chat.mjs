// Ask one question and rate the answer, with nothing but Node's fetch.

const URL = process.env.BURNISH_URL ?? "http://127.0.0.1:8787/v1";

async function post(path, body) {
  const headers = { "content-type": "application/json" };
  const response = await fetch(URL + path, { method: "POST", headers, body: JSON.stringify(body) });
  if (!response.ok) throw new Error(await response.text());
  return response.json();
}

const messages = [{ role: "user", content: "What is rust?" }];
const answer = await post("/chat/completions", { model: "default", messages, max_tokens: 60 });
console.log(answer.choices[0].message.content);
await post("/feedback", { response_id: answer.id, rating: 4, scale: "likert" });
