// Talks to the server. Errors carry the server's own message and its status (0: no answer at all).

let key = sessionStorage.getItem("knnmt-key") || "";

export function useKey(value) {
  key = value;
  sessionStorage.setItem("knnmt-key", value);
}

export const hasKey = () => key !== "";

export class ServerError extends Error {
  constructor(message, status, retryAfter = 0) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

export async function request(path, { method = "GET", json, body, type, signal } = {}) {
  const headers = {};
  if (key) headers.Authorization = `Bearer ${key}`;
  if (json !== undefined) {
    headers["Content-Type"] = "application/json";
    body = JSON.stringify(json);
  } else if (type) {
    headers["Content-Type"] = type;
  }
  let response;
  try {
    response = await fetch(path, { method, headers, body, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("the server does not answer", 0);
  }
  if (response.ok) return response;
  let message = `${response.status} ${response.statusText}`.trim();
  try {
    message = (await response.json()).error || message;
  } catch {
    // no JSON: something before the server answered, and its status is all there is to say
  }
  throw new ServerError(message, response.status, Number(response.headers.get("Retry-After")) || 0);
}

export const ask = async (path, options) => (await request(path, options)).json();
