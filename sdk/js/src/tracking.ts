/** From OpenFeature's `track` to an event that the service takes. */

import type { EvaluationContext, TrackingEventDetails } from "@openfeature/core";

import { unitOf } from "./evaluation.js";
import type { TrackedEvent } from "./events.js";
import type { Warnings } from "./transport.js";

/**
 * The event, with its own id unless `details.id` has one; undefined, with a warning, if it is
 * nobody's or has no number.
 */
export function trackedEvent(
  name: string,
  context: EvaluationContext,
  details: TrackingEventDetails | undefined,
  newId: () => string,
  warnings: Warnings,
): TrackedEvent | undefined {
  const { value = 1, id, at } = details ?? {};
  const unit = unitOf(context);
  const time = at === undefined ? new Date() : new Date(at as string | number | Date);
  const fault =
    unit === undefined
      ? "the context has no targetingKey"
      : !Number.isFinite(value)
        ? `its value is ${String(value)}, and no number`
        : Number.isNaN(time.getTime())
          ? `at is ${String(at)}, and no time`
          : undefined;
  if (unit === undefined || fault !== undefined) {
    warnings.show("track", `the event ${name} is not reported: ${fault}.`);
    return undefined;
  }
  const key = typeof id === "string" || typeof id === "number" ? String(id) : "";
  return { id: key || newId(), unit, event: name, value, at: time.toISOString() };
}
