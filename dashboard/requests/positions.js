// The place of each waiting request in the queue. Pure.

/**
 * The fleet's requests, the waiting ones with their `position`: what the balancer says, or else oldest
 * first, as they came.
 */
export function withPositions({ requests }) {
  const queued = requests.filter((request) => request.state === "queued");
  queued.sort((a, b) => b.age_seconds - a.age_seconds);
  const places = new Map(queued.map((request, index) => [request.id, index + 1]));
  return requests.map((request) => ({
    ...request,
    position: request.position ?? places.get(request.id) ?? null,
  }));
}
