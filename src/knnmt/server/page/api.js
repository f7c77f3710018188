// Requests to the server. Errors carry the server's message and status (0: no response).

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
    throw new ServerError("the server is not responding", 0);
  }
  if (response.ok) return response;
  let message = `${response.status} ${response.statusText}`.trim();
  try {
    message = (await response.json()).error || message;
  } catch {
    // not JSON: a proxy answered, and the status is all there is
  }
  throw new ServerError(message, response.status, Number(response.headers.get("Retry-After")) || 0);
}

// Save a file under a name. It is fetched first: a link could not carry the key.
export async function download(path, name) {
  const content = await (await request(path)).blob();
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

export const ask = async (path, options) => (await request(path, options)).json();
